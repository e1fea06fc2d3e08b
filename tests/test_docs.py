"""The pages of documentation: their code runs, their commands exist, and the reference knows every public name."""

import importlib
import re
import shlex
import sys
import warnings
from contextlib import chdir
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
import sklearn
from click.testing import CliRunner

from tests.probing import quick_probes
from unspur.cli import main
from unspur.datasets import make_toy
from unspur.exceptions import NothingRemovedWarning, TaskLostWarning

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: What `make docs` writes into the folder of the sources; git ignores it.
WRITTEN = ("results", "evidence", "gallery", "api/generated", "contributing.md", "changelog.md", "_static")
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if not any(page.relative_to(DOCS).as_posix().startswith(written) for written in WRITTEN)
]
#: Blocks of Python that need what a test has not; a page that is not named here has none.
NOT_RUN = {"guides/big-data.md": 3, "guides/huggingface.md": 2, "guides/timm.md": 2}
#: Pages whose commands are run as well, after the Python above them.
COMMANDS_RUN = {"start.md", "guides/vector-index.md"}
BLOCK = re.compile(r"(<!-- not run: [^>]+ -->\n)?^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


def blocks(page: Path) -> list[tuple[bool, str, str]]:
    """Whether it is to be run, the language and the text of each block, in order."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(not mark, language, text) for mark, language, text in found]


def commands(text: str, program: str = "unspur") -> list[list[str]]:
    """Arguments of every `unspur`, or of another program, in a block of console lines."""
    lines = text.replace("\\\n", " ").splitlines()
    lines = [re.sub(r"^for .*?; do (.*); done$", r"\1", line) for line in lines]
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[1:] for line in words if line[:1] == [program]]


def prepared(page: str, folder: Path) -> dict[str, object]:
    """Names, and files in the folder, that a page takes for granted."""
    toy = make_toy(1000, rho=0.5, random_state=0)
    if page == "guides/big-data.md":
        (folder / "big").mkdir()
        rows = pd.DataFrame(toy.Z).add_prefix("z").assign(bird=toy.y, background=toy.concept)
        rows.to_parquet(folder / "big" / "rows.parquet")
        np.save(folder / "rows.npy", toy.Z)
    return {"Z": toy.Z, "y": toy.y, "background": toy.concept}


def run_code(page: Path, folder: Path) -> int:
    """Run the blocks of a page; return how many are not to be run."""
    name, skipped = name_of(page), 0
    names = {"__name__": "page", **prepared(name, folder)}
    try:
        with chdir(folder), warnings.catch_warnings(), quick_probes():
            for kind in (NothingRemovedWarning, TaskLostWarning):  # pages speak of them, and show them
                warnings.simplefilter("ignore", kind)
            warnings.filterwarnings("ignore", r"(?s).*type hint", UserWarning)  # of MLflow, about its own code
            for to_run, language, text in blocks(page):
                if language == "python" and to_run:
                    exec(compile(text, name, "exec"), names)
                elif language == "python":
                    skipped += 1
                elif name in COMMANDS_RUN:
                    for arguments in commands(text):
                        result = CliRunner().invoke(main, arguments)
                        assert result.exit_code == 0, (arguments, result.output)
    finally:
        sklearn.set_config(enable_metadata_routing=False)
    return skipped


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text("utf-8")], ids=name_of)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the page sets it as well; so it is unset afterwards
    assert run_code(page, tmp_path) == NOT_RUN.get(name_of(page), 0)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_a_page_exist(page):
    for _, language, text in blocks(page):
        for arguments in commands(text) if language == "console" else []:
            require_valid(arguments)


def require_valid(arguments: list[str], program: click.Group = main) -> None:
    """Fails if the command, an option, or the value of a choice does not exist, or a required option is missing."""
    context = click.Context(program)
    command = program.get_command(context, arguments[0])
    assert command is not None, arguments
    context = click.Context(command, parent=context)
    given, _, _ = command.make_parser(context).parse_args(list(arguments[1:]))
    if "--list" in arguments:
        return
    for option in command.params:
        value = given.get(option.name)
        assert value is not None or not option.required, (arguments, option.name)
        if isinstance(option.type, click.Choice) and value is not None:
            for one in value if option.multiple else [value]:
                option.type.convert(one, option, context)


@pytest.mark.parametrize(
    "wrong", ["unfit a.npz", "fit a.npz --nonsense 1", "compare a.npz --task y --concept c --head NONE", "fit a.npz"]
)
def test_a_wrong_command_would_be_noticed(wrong):
    with pytest.raises((AssertionError, click.UsageError)):
        require_valid(wrong.split())


def test_pages_with_commands_were_found():
    shown = [text for page in PAGES for _, language, text in blocks(page) if language == "console"]
    assert sum(len(commands(text)) for text in shown) > 30


def reference() -> set[str]:
    """Full names of all that the reference has a page or a section for."""
    names = set()
    for page in (DOCS / "api").glob("*.rst"):
        module, inside = "", False
        for line in page.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"\.\. (currentmodule|automodule):: (\S+)", line):
                module = match[2]
                names |= {module} if match[1] == "automodule" else set()
            inside = line.startswith(".. autosummary::") or (inside and (not line or line.startswith(" ")))
            if inside and re.fullmatch(r"   [\w.]+", line):
                name = line.strip()
                names.add(name if name.startswith("unspur") else f"{module}.{name}")
    return names


@pytest.mark.parametrize("module", ["unspur", "unspur.metrics", "unspur.surgery", "unspur.datasets", "unspur.report"])
def test_every_public_name_is_in_the_reference(module):
    public = set(importlib.import_module(module).__all__) - {"__version__"}
    known = reference()
    assert len(known) > 50
    assert not {name for name in public if f"{module}.{name}" not in known}


def test_the_reference_names_what_exists():
    for name in reference() - set(sys.modules):
        module, _, rest = name.rpartition(".")
        while module not in sys.modules:
            importlib.import_module(module)
        assert hasattr(importlib.import_module(module), rest), name


def test_docstrings_whose_fields_are_sentences_are_read_as_such(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    as_napoleon_reads = importlib.import_module("docstrings").as_napoleon_reads
    lines = [
        "Promise.",
        "",
        "Parameters",
        "----------",
        "Z : rows (n, d).",
        "cv : int, default=5",
        "    Number of folds.",
        "low, high : bounds of what is",
        "    measured.",
        "",
        "Afterwards nothing is as it was.",
    ]
    as_napoleon_reads(None, "function", "f", None, None, lines)
    assert lines == [
        "Promise.",
        "",
        "Parameters",
        "----------",
        "Z",
        "    rows (n, d).",
        "cv : int, default=5",
        "    Number of folds.",
        "low, high",
        "    bounds of what is",
        "    measured.",
        "",
        "Notes",
        "-----",
        "Afterwards nothing is as it was.",
    ]
