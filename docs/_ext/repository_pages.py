"""Evidence, results, changelog and contributing as pages of the site, and links that lead there.

Pages link to each other by their paths in the repository, as readers of the repository need it. Here, what lies outside
`docs` and is a page or a picture is copied in before the build (git ignores the copies); a source becomes a page of
the site, or a link to where the repository is on the web (`repository_url`).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
#: Folders of pages and drawings outside `docs`, and what they are called in `docs`.
FOLDERS = {
    ROOT / "reproduction" / "docs": DOCS / "evidence",
    ROOT / "reproduction" / "results": DOCS / "results",
}
#: Pages of the repository, and what they are called in `docs`.
PAGES = {ROOT / "CONTRIBUTING.md": DOCS / "contributing.md", ROOT / "CHANGELOG.md": DOCS / "changelog.md"}
#: Sources that can be shown, and what they are written in.
LANGUAGES = {".py": "python", ".toml": "toml"}
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")

log = logging.getLogger(__name__)


@functools.cache
def copies() -> dict[Path, Path]:
    """What is copied, and where to."""
    found = dict(PAGES)
    for folder, copy in FOLDERS.items():
        for pattern in ("*.md", "*/*.md", "*/*.svg"):
            found |= {path: copy / path.relative_to(folder) for path in folder.glob(pattern)}
    return found


def copy_pages(app: Sphinx) -> None:
    """Bring the copies up to date, and remove those whose originals are gone."""
    wanted = copies()
    for original, copy in wanted.items():
        if not copy.exists() or copy.read_bytes() != original.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(original, copy)
    for folder in FOLDERS.values():
        for old in set(folder.rglob("*.*")) - set(wanted.values()):
            old.unlink()


def toctree(page: Path, source: str) -> str:
    """The navigation below the two pages that introduce a folder; nothing for other pages."""
    if page == DOCS / "results" / "README.md":  # every page, under names that are short and differ
        pages = sorted(path.relative_to(page.parent) for path in page.parent.glob("*/*.md"))
        entries = [f"{path.parent} · {path.stem} <{path.with_suffix('').as_posix()}>" for path in pages]
    elif page == DOCS / "evidence" / "README.md":  # the pages it links to, in its order; others are of `docs` itself
        linked = [match[1].removesuffix(".md") for match in LINK.finditer(source)]
        entries = [name for name in linked if "/" not in name or name == "../results/README"]
    else:
        return ""
    return "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n"


def in_site(path: Path) -> Path | None:
    """Where a file of the repository is in the site's own folder, if it is there."""
    if path == ROOT / "README.md":
        return DOCS / "index.md"
    return path if path.is_relative_to(DOCS) else copies().get(path)


def lead_links_there(app: Sphinx, docname: str, source: list[str]) -> None:
    """Rewrite links of one page (event source-read): to copies by their place, to anything else as ``repo:path``."""
    page = Path(app.env.doc2path(docname))
    if page.suffix != ".md":
        return
    original = next((path for path, copy in copies().items() if copy == page), page)
    app.env.linked_sources[docname] = set()

    def rewritten(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(original.parent / match[1]))
        if not target.exists():
            log.warning("%s links to %s, which does not exist", original.relative_to(ROOT), match[1], location=docname)
            return match[0]
        if place := in_site(target):
            return f"]({Path(os.path.relpath(place, page.parent)).as_posix()}{match[2] or ''})"
        app.env.linked_sources[docname].add(target.relative_to(ROOT).as_posix())
        return f"](repo:{target.relative_to(ROOT).as_posix()})"

    prose_and_code = re.split(r"(^```.*?^```$)", source[0], flags=re.DOTALL | re.MULTILINE)
    text = "".join(part if part.startswith("```") else LINK.sub(rewritten, part) for part in prose_and_code)
    source[0] = text + toctree(page, text)


def resolve_sources(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Give ``repo:path`` an address: on the web, in the site, or (a folder, without the web) none."""
    for link in list(doctree.findall(nodes.reference)):
        if not str(link.get("refuri", "")).startswith("repo:"):
            continue
        path = link["refuri"].removeprefix("repo:")
        if base := app.config.repository_url:
            link["refuri"] = f"{base.rstrip('/')}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}"
        elif Path(path).suffix in LANGUAGES and app.builder.format == "html":
            link["refuri"] = app.builder.get_relative_uri(docname, f"source/{path}")
            link["internal"] = True
        else:
            link.replace_self(link.children)


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for every source that is linked to (event html-collect-pages)."""
    if app.config.repository_url:
        return
    for path in sorted(set().union(*app.env.linked_sources.values())):
        if language := LANGUAGES.get(Path(path).suffix):
            text = (ROOT / path).read_text(encoding="utf-8")
            code = app.builder.highlighter.highlight_block(text, language, linenos=False)
            yield f"source/{path}", {"title": path, "body": f"<h1>{path}</h1>{code}"}, "page.html"


def _start(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    env.linked_sources = getattr(env, "linked_sources", {})


def _forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    getattr(env, "linked_sources", {}).pop(docname, None)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("repository_url", "", "env")
    app.connect("builder-inited", copy_pages)
    app.connect("env-before-read-docs", _start)
    app.connect("env-purge-doc", _forget)
    app.connect("source-read", lead_links_there)
    app.connect("doctree-resolved", resolve_sources)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
