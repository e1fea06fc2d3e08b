# Every target sets itself up: the first run makes .venv and installs; later runs need no network.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo picture test lint types bench defaults results frozen finetuned check clean

demo: $(READY)  ## remove the photograph behind the digits, end to end
	$(BIN)/unspur demo --output unspur-demo.png --force

picture: $(READY)  ## the picture of the README
	$(BIN)/unspur demo --output docs/images/demo.png --force

test: $(READY)  ## the whole test suite, a file to each core in turn
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n logical --dist loadfile

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

types: $(READY)
	$(BIN)/mypy

bench: $(READY)  ## speed, as ratios within one run, and docs/benchmarks.md; its other figures have commands of their own
	$(BIN)/python -W ignore benchmarks/bench.py
	$(BIN)/python benchmarks/speed_page.py

defaults: $(READY)  ## the evidence behind the default parameters, docs/defaults.md
	$(BIN)/python benchmarks/defaults.py

results: $(READY)  ## every experiment on Toy beside the published values, into results/ (an hour and a half on two cores)
	$(BIN)/unspur reproduce toy --output results

frozen: $(READY)  ## birds and faces, from the stores in unspur-embeddings/ (docs/datasets.md), and their page
	$(BIN)/unspur reproduce waterbirds celeba --output results
	$(BIN)/python benchmarks/result_pages.py --frozen unspur-embeddings

finetuned: $(READY)  ## networks trained with the correlation, from the stores of benchmarks/finetuned_networks.py, and their page
	$(BIN)/unspur reproduce waterbirds-finetuned waterbirds-finetuned-group waterbirds-gradcam multinli --output results
	$(BIN)/python benchmarks/result_pages.py --finetuned unspur-embeddings

check: lint types test

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist unspur-demo.png
