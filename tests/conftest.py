"""What is skipped where extras of the package are not installed (`make test-minimal`).

Modules about an extra (`ABOUT`) are not collected. Elsewhere a test that fails is skipped if it, or the package, asked
for a library that is not installed, also where a command turned that error into an exit code.
"""

from importlib.util import find_spec

import pytest

from unspur._extras import EXTRAS
from unspur.exceptions import MissingExtraError

#: What is not installed, before any test pretends that something is not.
ABSENT = {name for name in (*EXTRAS, "docutils", "onnxruntime") if find_spec(name) is None}
#: Modules, or folders of them, that are about libraries from beginning to end.
ABOUT = {
    "browser": ("jinja2", "PIL"),
    "cli/test_embed_command.py": ("PIL", "pyarrow", "torch", "transformers"),
    "embed": ("PIL", "pyarrow", "torch", "transformers"),
    "report/test_figures.py": ("matplotlib",),
    "report/test_page.py": ("jinja2", "matplotlib", "PIL"),
    "report/test_words.py": ("PIL",),
    "rows/test_dask.py": ("dask", "distributed"),
    "rows/test_torch.py": ("torch",),
    "surgery/test_export.py": ("onnx", "onnxruntime", "torch"),
    "surgery/test_hooks.py": ("torch", "transformers"),
    "surgery/test_scrubbing.py": ("torch", "transformers"),
    "test_docs.py": ("docutils", "matplotlib", "torch"),
}
collect_ignore = [place for place, libraries in ABOUT.items() if ABSENT.intersection(libraries)]
#: Errors of this test about what is not installed.
ASKED = []

if ABSENT:
    said = MissingExtraError.__init__

    def noting(self, *words):
        said(self, *words)
        ASKED.append(self)

    MissingExtraError.__init__ = noting


def pytest_runtest_setup(item):
    ASKED.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and ABSENT:
        errors = [error for error in (call.excinfo.value, *ASKED) if isinstance(error, ImportError)]
        missing = [error for error in errors if (error.name or "").partition(".")[0] in ABSENT]
        if missing:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1], f"Skipped: {missing[0]}")
    return report
