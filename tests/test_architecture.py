"""The shape of the code: dependencies point one way, and importing the package stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import unspur
from unspur._registry import HEADS, REMOVERS

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
try:
    import house
finally:
    sys.path.pop(0)

#: Lines that a room may have (`benchmarks/house.py`): lowered whenever a room becomes smaller.
BUDGETS = {
    "input to rows": 1725,
    "errors, registry, extras": 300,
    "arrays and threads": 425,
    "files and tables": 600,
    "tests of directions, trace, subspaces": 1075,
    "choosing, classifier, compare": 1625,
    "certificate, audit, datasets": 1425,
    "rows": 800,
    "solvers": 3150,
    "removers": 2675,
    "heads": 1575,
    "metrics": 1725,
    "surgery": 1500,
    "embed": 900,
    "report": 3500,
    "command line": 2075,
    "PRODUCT": 25_000,
    "modules": 92,
    "tests": 19_000,
    "trials": 4_250,
    "benchmarks": 2_900,
    "reproduction": 22_600,
}

SOURCE = Path(unspur.__file__).parent
#: Layers from the bottom up; a module may import from its own layer and from those below.
LAYERS = [
    ("_version", "_typing", "exceptions", "_resources", "_arrays", "_text"),
    ("_files", "_extras", "_registry"),
    ("subspace", "rows", "labels", "clusters"),
    ("solvers",),
    ("_validation",),
    ("_data",),
    ("criteria",),
    ("trace",),
    ("metrics",),
    ("certificate",),
    ("removers",),
    ("heads",),
    ("surgery",),
    ("selection",),
    ("robust", "auditing"),
    ("",),  # the public names
    ("datasets",),
    ("compare",),
    ("embed",),
    ("io",),
    ("report",),
    ("cli",),
    ("__main__",),
]


def level(module: str) -> int:
    """Height of a module such as ``unspur.solvers.logistic``."""
    inside = module.removeprefix("unspur").lstrip(".")
    for height, names in enumerate(LAYERS):
        if any(inside == name or (name and inside.startswith(name + ".")) for name in names):
            return height
    raise AssertionError(f"{module} is in no layer; add it to LAYERS and to docs/architecture.md")


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(("unspur", *path.relative_to(SOURCE).with_suffix("").parts))
        yield name.removesuffix(".__init__"), path


def imported(path: Path):
    """Modules of this package that a file imports, anywhere in it."""
    known = dict(modules())
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "unspur")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unspur":
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in inner)


@pytest.mark.parametrize(("name", "path"), [pytest.param(*m, id=m[0]) for m in modules()])
def test_imports_point_down(name, path):
    above = [other for other in imported(path) if level(other) > level(name)]
    assert not above, f"{name} imports {above}, which stand above it"


def test_the_reproduction_is_never_imported():
    """It is found by entry points, where it is installed."""
    for name, path in modules():
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found = [ast.unparse(node) for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not [line for line in found if "unspur_paper" in line], name


def test_the_check_sees_imports_and_would_complain():
    assert "unspur.removers.joint" in set(imported(SOURCE / "removers" / "jse.py"))
    assert level("unspur.cli.fit") > level("unspur.removers.jse") > level("unspur.solvers.logistic")


def test_importing_the_package_loads_nothing_heavy():
    heavy = ("pandas", "rich", "sklearn", "torch", "dask", "transformers", "matplotlib", "onnx")
    code = f"import sys, unspur; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_are_written_out_and_exist():
    assert set(unspur.__all__) == {
        *REMOVERS,
        *HEADS,
        "load",
        "AffineMap",
        "Subspace",
        "__version__",
        "surgery",
        "RobustClassifier",
        "audit",
        "Audit",
        "AuditedColumn",
    }
    assert list(REMOVERS)[:6] == ["JSE", "INLP", "RLACE", "LEACE", "SAL", "SPLINCE"]  # they stay
    assert list(HEADS)[:6] == ["ERM", "GroupWeighted", "SUBG", "GroupDRO", "JTT", "DFR"]
    assert all(hasattr(unspur, name) for name in unspur.__all__)


@pytest.mark.parametrize(
    ("file", "names"),
    [("__init__", {*HEADS, *REMOVERS}), ("heads/__init__", {*HEADS}), ("removers/__init__", {*REMOVERS})],
)
def test_type_checkers_see_what_is_registered(file, names):
    """They do not run the registry, so every name is imported once more for them."""
    tree = ast.parse((SOURCE / f"{file}.py").read_text(encoding="utf-8"))
    exported = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert not names - exported, f"{file}.py needs an import X as X under TYPE_CHECKING"


def test_every_room_keeps_to_its_budget():
    counted = house.counted(house.ROOT)
    assert not {room: (counted[room], most) for room, most in BUDGETS.items() if counted[room] > most}
    assert house.room_of("solvers.logistic") == "solvers"
    assert house.room_of("removers.concepts") == "input to rows"  # the longest name decides
