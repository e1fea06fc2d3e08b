"""How figures of the gallery look, and how those are caught that pyplot does not know, and pages."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from typing import Any

#: Figures that are on a page already.
_shown: weakref.WeakSet[Any] = weakref.WeakSet()
_pages: set[Path] = set()


def reset(gallery_conf: dict[str, Any], fname: str) -> None:
    """Before each example: plain axes on white, legible at the width of the page; and scikit-learn as it was."""
    import matplotlib as mpl
    import sklearn

    mpl.rcParams.update(
        {
            "figure.figsize": (7, 4),
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlelocation": "left",
            "font.size": 10,
            "legend.frameon": False,
        }
    )
    sklearn.set_config(enable_metadata_routing=False)


def figures_of_reports(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Figures of `unspur.report.figures` that a block of code made: they are values, which pyplot does not know."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from sphinx_gallery.scrapers import figure_rst

    paths = []
    for value in list(block_vars["example_globals"].values()):
        if not isinstance(value, Figure) or value in _shown:
            continue
        _shown.add(value)
        if value.canvas.manager is None:  # else pyplot has it, and sphinx-gallery shows it
            path = next(block_vars["image_path_iterator"])
            FigureCanvasAgg(value)
            value.savefig(path, dpi=130)
            paths.append(path)
    return figure_rst(paths, gallery_conf["src_dir"]) if paths else ""


PAGE = """
.. raw:: html

   <p><a href="../_static/pages/{name}">Open the page by itself</a></p>
   <iframe class="report-page" src="../_static/pages/{name}" title="{name}" loading="lazy"></iframe>

"""


def pages_of_reports(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """An HTML file that a block of code wrote, and called `page`: copied into the site and shown in place."""
    page = block_vars["example_globals"].get("page")
    if not isinstance(page, Path) or not page.exists() or page in _pages:
        return ""
    _pages.add(page)
    folder = Path(gallery_conf["src_dir"]) / "_static" / "pages"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(page, folder / page.name)
    return PAGE.format(name=page.name)
