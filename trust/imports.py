"""Which libraries a source file imports, and when: read from the text, so that nothing has to be installed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

#: Libraries that need no declaring.
OWN = {*sys.stdlib_module_names, "unspur"}
#: Together with the file; when a function is called; by type checkers alone.
When = Literal["at once", "when called", "for types"]


@dataclass(frozen=True, slots=True)
class Import:
    """One library that a file imports."""

    library: str
    #: In full: ``unspur.rows.torch``.
    module: str
    when: When


def imports(source: str) -> Iterator[Import]:
    """All absolute imports of a text."""
    yield from _within(ast.parse(source), "at once")


def foreign(source: str) -> Iterator[Import]:
    """Those that are neither of the standard library nor of this package."""
    yield from (found for found in imports(source) if found.library not in OWN)


def _within(node: ast.AST, when: When) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside: When = when
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inside = "when called"
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            inside = "for types"
        elif isinstance(child, ast.Import):
            yield from (_of(alias.name, when) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level:
            yield from (_of(f"{child.module}.{alias.name}", when) for alias in child.names)
        yield from _within(child, inside)


def _of(module: str, when: When) -> Import:
    return Import(module.partition(".")[0], module, when)
