"""How our docstrings are written, for Sphinx: fields that are sentences, names in backticks, whose members count."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.roles import XRefRole

FIELDS = {"Parameters", "Attributes", "Other Parameters"}
#: What removers and their base class say to each other.
NOT_FOR_USERS = {"trace_type", "warn_if_nothing_removed"}
FIELD = re.compile(r"^(?P<name>[\w*][\w*, ]*?) : (?P<text>.+)$")


def as_napoleon_reads(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite what our docstrings leave to the reader's eye, and napoleon would misread (autodoc-process-docstring)."""
    if what in ("property", "attribute"):
        lines[:0] = ["..", ""]  # else napoleon takes what is before a colon in the first line for a type
    starts = [i for i in range(len(lines) - 1) if lines[i] and re.fullmatch(r"-{3,}", lines[i + 1])]
    out = lines[: starts[0]] if starts else list(lines)
    for start, end in pairwise([*starts, len(lines)]):
        heading, body = lines[start].strip(), lines[start + 2 : end]
        out += [heading, "-" * len(heading), *(_fields(body) if heading in FIELDS else body)]
    lines[:] = out


def _fields(body: list[str]) -> list[str]:
    """``name : what it is.`` has a description where napoleon expects a type, so it gets a line of its own.

    A type stands alone on its line, and what is below it begins a sentence. A paragraph after the fields is a note.
    """
    out: list[str] = []
    for i, line in enumerate(body):
        below = body[i + 1].strip() if i + 1 < len(body) and body[i + 1].startswith(" ") else ""
        match = FIELD.match(line)
        if match and (match["text"].endswith(".") or not below or below[0].islower()):
            out += [match["name"], f"    {match['text']}"]
        elif line and i and not body[i - 1] and not match and not line.startswith((" ", "*")):
            return [*out, "Notes", "-----", *body[i:]]
        else:
            out.append(line)
    return out


def only_ours(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to an estimator, and what one remover tells its base class."""
    if name in NOT_FOR_USERS:
        return True
    module = getattr(obj, "__module__", None) or getattr(getattr(obj, "fget", None), "__module__", None)
    return True if module and not module.startswith("unspur") else None


class Named(XRefRole):
    """A name in single backticks: a link where it is one of ours, else code."""

    def result_nodes(
        self, document: nodes.document, env: BuildEnvironment, node: nodes.Element, is_ref: bool
    ) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Mark the reference as one that may lead nowhere."""
        node["refdomain"], node["reftype"], node["maybe"] = "py", "obj", True
        node["py:module"] = env.ref_context.get("py:module")
        node["py:class"] = env.ref_context.get("py:class")
        return [node], []


def plain_code(app: Sphinx, env: BuildEnvironment, node: pending_xref, inside: nodes.Element) -> nodes.Element | None:
    """A name that is none of ours is code and no link."""
    return nodes.literal("", inside.astext()) if node.get("maybe") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx; before napoleon, which rewrites the same lines."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_role("named", Named())
    app.connect("autodoc-process-docstring", as_napoleon_reads, priority=100)
    app.connect("autodoc-skip-member", only_ours)
    app.connect("missing-reference", plain_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
