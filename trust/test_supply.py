"""What comes with the package and what is in its wheel, without a network."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions

from packaging.utils import canonicalize_name

from trust import wheel as packed
from trust.declared import CORE, ROOT, declared
from trust.imports import OWN, foreign, imports
from trust.licences import NOTED, PAGE, brought, not_permissive, rows_declared
from trust.oldest import TARGET, oldest
from unspur._extras import EXTRAS

PART = "supply chain"
SOURCE = ROOT / "src" / "unspur"
HEAVY = (
    "torch",
    "dask",
    "distributed",
    "transformers",
    "matplotlib",
    "pandas",
    "rich",
    "pyarrow",
    "jinja2",
    "PIL",
    "onnx",
)
#: Modules that are written for a library of an extra; nobody imports them before the library is needed.
ADAPTERS = {
    "rows/torch.py": {"torch"},
    "rows/dask.py": {"cloudpickle", "dask"},
    "surgery/modules.py": {"torch"},
}
#: Libraries that are not declared, and where they come from.
BROUGHT = {"cloudpickle": "dask", "markupsafe": "jinja2"}


def python(*arguments: str, check: bool = True, **options) -> subprocess.CompletedProcess:
    """A fresh interpreter in the root of the repository."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=check, **options
    )


def sources() -> dict[str, str]:
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


# What importing brings


def loaded(code: str) -> set[str]:
    told = python("-c", f"import sys, json\n{code}\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]))")
    return set(json.loads(told.stdout))


def test_importing_brings_in_nothing_heavy(tally):
    line = tally("libraries of extras that importing does not load")
    assert loaded("import jinja2") == {"jinja2"}  # it would be seen
    own = loaded("from unspur import *") - loaded("import sklearn.linear_model")  # takes pandas
    for found in (loaded("import unspur"), own):
        line.trials(len(HEAVY), len(HEAVY) - len(found))
        assert line.all_survived, found


# What the source does, and what it declares


def test_no_line_of_the_package_executes_text(tally):
    line = tally("source files that execute neither text nor pickle")
    assert list(dangerous("import os\nos.system(x)\neval(x)")) == ["os.system", "eval"]
    for name, text in sources().items():
        # Parts of a computation travel to the workers of a cluster, and back, in pickles; so does all that Dask sends.
        wrong = [call for call in dangerous(text) if (name, call) != ("rows/dask.py", "cloudpickle.loads")]
        assert line.trial(not wrong), (name, wrong)


def dangerous(text: str) -> Iterator[str]:
    """Calls that execute text or pickles, by the name they are called by."""
    names = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        trusting = [k for k in node.keywords if k.arg in ("allow_pickle", "trust_remote_code", "shell")]
        library, _, function = called.rpartition(".")
        if (
            called in names
            or library == "subprocess"
            or (library in ("pickle", "cloudpickle", "joblib", "dill", "marshal") and function in ("load", "loads"))
            or any(not isinstance(k.value, ast.Constant) or k.value.value for k in trusting)
            or (called == "torch.load" and "weights_only=True" not in ast.unparse(node))
        ):
            yield called


@cache
def distributions() -> dict[str, set[str]]:
    """Library, as it is imported -> packages that bring it."""
    return {name: {canonicalize_name(one) for one in ones} for name, ones in packages_distributions().items()}


def packages(library: str) -> set[str]:
    """Those that bring a library; one that is not installed here is taken to have the name of its package."""
    return distributions().get(library, {canonicalize_name(library)})


@cache
def names(extra: str = "") -> set[str]:
    """Packages that are declared, or those of one extra."""
    return {one.name for one in declared() if extra in ("", one.extra)}


def undeclared(text: str) -> list[str]:
    known = names()
    libraries = {found.library for found in foreign(text)} - {*BROUGHT}
    return sorted(library for library in libraries if not packages(library) & known)


def too_early(name: str, text: str) -> list[str]:
    """Libraries of extras, and modules written for them, that a file imports before they are needed."""
    core = names(CORE)
    allowed = ADAPTERS.get(name, set())
    adapters = {f"unspur.{path.removesuffix('.py').replace('/', '.')}" for path in ADAPTERS}
    early = [found for found in imports(text) if found.when == "at once"]
    libraries = {found.library for found in early if found.library not in OWN} - allowed
    wrong = {library for library in libraries if not packages(library) & core}
    return sorted(
        wrong | {found.module for found in early if {found.module, found.module.rpartition(".")[0]} & adapters}
    )


def test_every_library_that_is_imported_is_declared(tally):
    line = tally("imports of other libraries that pyproject.toml declares")
    assert undeclared("import requests\nimport numpy") == ["requests"]
    for name, text in sources().items():
        found, number = undeclared(text), sum(1 for _ in foreign(text))
        line.trials(number, number - len(found))
        assert not found, f"{name} imports {found}"
    assert line.all_survived


def test_libraries_of_extras_are_imported_where_they_are_used_only(tally):
    line = tally("source files that import the core alone until asked")
    assert too_early("io.py", "import torch\ndef f():\n    import dask") == ["torch"]
    assert too_early("io.py", "from unspur.rows.torch import TorchRows") == ["unspur.rows.torch.TorchRows"]
    assert not too_early("io.py", "if TYPE_CHECKING:\n    import torch")
    for name, text in sources().items():
        found = too_early(name, text)
        assert line.trial(not found), f"{name} imports {found}"


def test_nothing_is_declared_in_vain(tally):
    line = tally("declared dependencies that the source uses")
    used = {found.library for text in sources().values() for found in foreign(text)}
    used_packages = set().union(*map(packages, used))
    for one in declared():
        line.trial(one.name in used_packages | {"distributed"})  # with which a Dask cluster is opened
        assert line.all_survived, f"{one.name} ({one.extra}) is declared and never imported"
    assert "pooch" not in used_packages  # so it would have been seen


def test_messages_name_the_extra_that_brings_a_library(tally):
    line = tally("libraries whose absence is told with the right extra")
    extras: dict[str, set[str]] = {}
    for one in declared():
        extras.setdefault(one.name, set()).add(one.extra)
    for library, extra in EXTRAS.items():
        (package,) = packages(library)
        assert line.trial(extra in extras[package]), (library, extra, extras[package])
    imported = {found.library for one in sources().values() for found in foreign(one)} - {*BROUGHT}
    optional = {name for name in imported if not any(CORE in extras.get(one, ()) for one in packages(name))}
    assert optional <= {*EXTRAS}


def test_the_oldest_versions_are_those_that_are_declared():
    assert TARGET.read_text(encoding="utf-8") == oldest(), "run `python -m trust.oldest`"


def test_licences_are_listed_and_known(tally):
    line = tally("dependencies, direct or not, with permissive licences")
    text = PAGE.read_text(encoding="utf-8")
    gone = [row for row in rows_declared() if row.rpartition(" | ")[0] not in text]
    assert not gone, "run `python -m trust.licences`"
    odd = not_permissive()
    every = {one.name for one in brought([one.requirement for one in declared()])}
    line.trials(len(every), len(every) - len(odd))
    line.figure = f"but {', '.join(f'{name} ({one.licence})' for name, one in odd.items())}"
    assert set(odd) <= set(NOTED), odd


# Public names


def public() -> dict[str, object]:
    """Public names of the public modules, and the public methods of classes among them."""
    homes = (
        "unspur",
        "unspur.exceptions",
        "unspur.heads",
        "unspur.metrics",
        "unspur.removers",
        "unspur.rows",
        "unspur.surgery",
        "unspur.subspace",
        "unspur.certificate",
        "unspur.trace",
        "unspur.labels",
        "unspur.datasets",
        "unspur.embed",
        "unspur.io",
        "unspur.report.measuring",
        "unspur.report",
        "unspur.report.figures",
        "unspur.compare",
    )
    found = {}
    for home in homes:
        module = import_module(home)
        found[home] = module
        for name in getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]):
            value = getattr(module, name)
            own = str(getattr(value, "__module__", "")).startswith("unspur")
            if not (own and (inspect.isclass(value) or inspect.isroutine(value))):
                continue
            found[f"{home}.{name}"] = value
            if inspect.isclass(value):
                found |= {
                    f"{home}.{name}.{part}": item
                    for part, item in vars(value).items()
                    if not part.startswith("_") and (inspect.isroutine(item) or isinstance(item, property))
                }
    return found


def test_all_public_names_have_docstrings(tally):
    line = tally("public names and methods with a docstring")
    bare = [name for name, value in public().items() if not line.trial(bool(inspect.getdoc(value)))]
    assert line.tried > 200
    assert not bare, bare


# Wheel and sdist


def test_wheel_and_sdist_hold_what_they_should(tally, tmp_path):
    line = tally("files of the wheel: all of the package, nothing else")
    wheel, sdist = packed.build("wheel", tmp_path), packed.build("sdist", tmp_path)
    faults = packed.faults_of_wheel(wheel) + packed.faults_of_sdist(sdist)
    with zipfile.ZipFile(wheel) as archive:
        number = len(archive.namelist())
    line.trials(number, number - len(faults))
    line.figure = f"wheel {wheel.stat().st_size / 1e6:.2f} MB, sdist {sdist.stat().st_size / 1e6:.1f} MB"
    assert line.all_survived, faults

    again = tally("wheel made from the sdist, the same to the byte")
    (tmp_path / "again").mkdir()
    again.trial(packed.digest(packed.wheel_from_sdist(sdist, tmp_path / "again")) == packed.digest(wheel))
    assert again.all_survived

    with zipfile.ZipFile(wheel, "a") as archive:  # it would be noticed
        archive.writestr("unspur/rows.npy", "stray")
        archive.writestr("unspur/py.typed.orig", f"{ROOT}/src")
    assert len(packed.faults_of_wheel(wheel)) == 5
