"""How figures of the gallery look, set before each example."""

from typing import Any


def reset(gallery_conf: dict[str, Any], fname: str) -> None:
    """Plain axes on white, legible at the width of the page; and scikit-learn as it was."""
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
