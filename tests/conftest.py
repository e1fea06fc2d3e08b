"""What is skipped where extras of the package are not installed (`make test-minimal`), and what never is.

Three ways lead to a skip, all of them only where a library is missing: the test itself imports it; its module is about
an extra (`ABOUT`); or the package said in the middle of a test which extra to install (`MissingExtraError`), in a part
of it that may need one (`MAY_NEED`). That the core needed an extra is a failure, and so is an error in other words.
With everything installed, as for `make test`, none of this ever acts.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from unspur._extras import EXTRAS
from unspur.exceptions import MissingExtraError

HERE = Path(__file__).parent
#: What is not installed, before any test pretends that something is not.
ABSENT = {name for name in (*EXTRAS, "docutils", "onnxruntime") if find_spec(name) is None}
#: Modules, or folders of them, that are about libraries from beginning to end.
ABOUT = {
    "browser": ("jinja2", "PIL"),
    "embed/test_huggingface.py": ("torch", "transformers"),
    "embed/test_images.py": ("PIL", "torch"),
    "report/test_pictures.py": ("PIL", "torch"),
    "report/page/test_thumbnails.py": ("PIL",),
    "report/test_figure_files.py": ("matplotlib",),
    "report/test_figures.py": ("matplotlib",),
    "cli/test_dask_command.py": ("distributed", "pyarrow", "zarr"),
    "io/test_stored_files.py": ("pandas", "pyarrow"),
    "rows/test_dask.py": ("dask", "distributed"),
    "rows/test_parquet.py": ("pandas", "pyarrow"),
    "rows/test_torch.py": ("torch",),
    "surgery/test_export.py": ("onnx", "onnxruntime", "torch"),
    "surgery/test_hooks.py": ("torch",),
    "surgery/test_networks.py": ("torch", "transformers"),
    "surgery/test_scrubbing.py": ("torch", "transformers"),
    "test_docs.py": ("docutils", "matplotlib", "pandas", "torch"),
}
#: Where the package may ask for an extra.
MAY_NEED = (
    "cli",
    "datasets",
    "embed",
    "io",
    "report",
    "rows",
    "surgery",
    "test_choosing.py",
    "test_compare.py",
    "test_readme.py",
)


def within(path, places):
    """The first of the places that a path is, or lies in."""
    return next((place for place in places if (HERE / place) in (path, *path.parents)), None)


class Unread(pytest.Module):
    """A module that cannot be imported here, and is skipped as a whole."""

    def collect(self):
        missing = sorted(ABSENT.intersection(ABOUT[within(self.path, ABOUT)]))
        pytest.skip(f"all of it is about what is not installed: {', '.join(missing)}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    place = within(module_path, ABOUT)
    if place and ABSENT.intersection(ABOUT[place]):
        return Unread.from_parent(parent, path=module_path)
    return None


#: What the package asked for since the last test began, also where a command turned it into an exit code.
ASKED = []

if ABSENT:
    said = MissingExtraError.__init__

    def noting(self, *words):
        said(self, *words)
        ASKED.append(self)

    MissingExtraError.__init__ = noting


def asked_by_test(found):
    """Whether it is a line of a test, or of what tests share, that imported what is not there."""
    return isinstance(found.value, ModuleNotFoundError) and HERE in Path(found.traceback[-1].path).parents


def pytest_runtest_setup(item):
    ASKED.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and ABSENT:
        wanted = [call.excinfo.value] if asked_by_test(call.excinfo) else []
        if within(item.path, MAY_NEED):
            wanted += [error for error in (call.excinfo.value, *ASKED) if isinstance(error, MissingExtraError)]
        missing = [error for error in wanted if error.name.partition(".")[0] in ABSENT]
        if missing:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1], f"Skipped: {missing[0]}")
    return report
