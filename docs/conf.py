"""How the documentation is built: `make docs`. Everything is local, so that building and reading need no network."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # examples are small: threads only get in each other's way

from unspur import __version__

project = "unspur"
author = "The unspur developers"
copyright = author
release = version = __version__

extensions = [
    "docstrings",  # _ext: how our docstrings are written
    "repository_pages",  # _ext: evidence, results, changelog and sources as pages of the site
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_ext", "gallery/*.ipynb", "gallery/*.py", "gallery/*.json", "gallery/searchindex.db"]
templates_path = ["_templates"]
#: Where the sources can be seen, such as "https://example.org/unspur"; without it they are pages of this site.
repository_url = os.environ.get("UNSPUR_REPOSITORY_URL", "")

# Markdown: page.md#section is checked, to headings of this depth; `repo:` is our own, for links to sources.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
myst_url_schemes = ["http", "https", "mailto", "repo"]

# Docstrings: types are in the text, where they say more ("array of shape (n, d)"), so signatures do without.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = True
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style"), "Returns"]
default_role = "named"  # a name of ours becomes a link, anything else is code
add_module_names = False
toc_object_entries_show_parents = "hide"
smartquotes_action = "D"  # dashes only: values such as "auto" are to be copied
python_use_unqualified_type_names = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("unspur",),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 3600,
    "remove_config_comments": True,
    "image_scrapers": (
        "gallery_looks.figures_of_reports",  # first: afterwards pyplot has forgotten which figures are its own
        "matplotlib",
        "gallery_looks.pages_of_reports",
    ),
    "reset_modules": ("matplotlib", "gallery_looks.reset"),
    "capture_repr": ("_repr_html_",),
}

html_theme = "pydata_sphinx_theme"
html_title = "unspur"
html_static_path = ["_static"]
html_css_files = ["unspur.css"]
html_js_files = ["names.js"]
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["version-footer"],
    "footer_center": [],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "start": []}

copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# `make linkcheck`: what a robot is refused, or what is not on the web at all.
linkcheck_ignore = [r"http://localhost", r"tcp://", r"http://127\.0\.0\.1"]
linkcheck_timeout = 30
