"""Rows and labels as people have them, as what is measured on: arrays in memory, codes, and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from unspur._arrays import on_numpy
from unspur._typing import Array, BoolArray, IntArray
from unspur.exceptions import InputError, LabelError
from unspur.labels import ClassLabel, class_label
from unspur.selection import Rows


@dataclass(frozen=True)
class Labelled:
    """Rows (n, d) with their main label and one or more concepts, by name.

    Groups are the combinations of the classes, main class by main class: those of `metrics.GroupAccuracy`.
    """

    Z: Array
    y: ClassLabel
    concepts: Mapping[str, ClassLabel]
    #: Which rows belong together, (n,), if some do.
    clusters: Array | None = None

    def __len__(self) -> int:
        return len(self.Z)

    def select(self, rows: Array) -> Labelled:
        """Some of the rows, by mask or index."""
        concepts = {name: label.select(rows) for name, label in self.concepts.items()}
        together = None if self.clusters is None else self.clusters[rows]
        return Labelled(self.Z[rows], self.y.select(rows), concepts, together)

    @cached_property
    def known(self) -> BoolArray:
        """Rows whose every concept is known, shape (n,)."""
        return np.asarray(np.all([label.present for label in self.concepts.values()], axis=0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of classes: of the main label, and of each concept."""
        return (len(self.y.classes), *(len(label.classes) for label in self.concepts.values()))

    @cached_property
    def group(self) -> IntArray:
        """Number of each row's group, shape (n,); -1 where a concept is not known."""
        codes = (self.y.codes, *(label.codes for label in self.concepts.values()))
        return np.where(self.known, np.ravel_multi_index(codes, self.shape), -1)

    @property
    def concept_codes(self) -> IntArray:
        """Codes of the concepts, shape (n, m)."""
        return np.column_stack([label.codes for label in self.concepts.values()])

    def concept_values(self) -> Array:
        """The concepts as removers take them: classes, None where not known; shape (n,) or (n, m)."""
        columns = [_values(label) for label in self.concepts.values()]
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def for_layers(self, z: Array | None = None) -> Rows:
        """All rows with codes for labels, as last layers take them: several concepts as one, NaN where not known.

        With `z` in place of the rows as they are.
        """
        joined = np.ravel_multi_index(tuple(self.concept_codes.T), self.shape[1:])
        concept = np.where(self.known, joined, np.nan)
        return Rows(self.Z if z is None else z, self.y.codes, concept, self.clusters, self._called)

    @cached_property
    def _called(self) -> Array:
        """What the group of each row is called, by its classes, shape (n,)."""
        labels = (self.y, *self.concepts.values())
        names = [", ".join(map(str, classes)) for classes in product(*(label.classes for label in labels))]
        return np.array(names, dtype=object)[self.group]

    def in_values(self) -> Rows:
        """All rows with the values of their labels, None where a concept is not known."""
        return Rows(self.Z, np.array(self.y.classes)[self.y.codes], self.concept_values(), self.clusters)

    def as_rows(self, *, joined: bool = False) -> Rows:
        """Those rows whose concepts are known, for methods that are compared.

        `joined`: several concepts as one, each combination a class, for last layers that look at groups.
        """
        known = self.select(self.known)
        concept = known.concept_values()
        if joined and len(self.concepts) > 1:
            concept = np.ravel_multi_index(tuple(known.concept_codes.T), self.shape[1:])
        elif len(self.concepts) == 1:
            (label,) = known.concepts.values()
            concept = np.array(label.classes)[label.codes]
        return Rows(known.Z, np.array(known.y.classes)[known.y.codes], concept, known.clusters)


def labelled(
    rows: Any, what: str, names: tuple[str, str | Sequence[str]], *, missing: Any = None, like: Labelled | None = None
) -> Labelled:
    """Rows that were given as `Rows`, or as a tuple (Z, y, concept).

    `names` are those of the main label and of the concept; several concepts bring their own, in a mapping or a
    DataFrame, or are given as many. `like` has the classes to expect.
    """
    z, y, concept = (rows.Z, rows.y, rows.concept) if isinstance(rows, Rows) else _three(rows, what)
    z = as_matrix(z, what)
    main, of_concept = names
    columns = named_concepts(concept, of_concept)
    if like is not None and set(columns) != set(like.concepts):
        raise InputError(
            f"Concepts of the {what} rows are called {', '.join(columns)}, those of the training rows "
            f"{', '.join(like.concepts)}; they must be the same."
        )
    order = columns if like is None else like.concepts
    label = class_label(y, main, len(z), classes=None if like is None else like.y.classes)
    if not label.present.all():
        raise LabelError(
            f"{main} is missing in {np.sum(~label.present)} {what} rows; a last layer needs it in all. Drop those rows."
        )
    found = {
        name: class_label(
            columns[name], name, len(z), missing=missing, classes=None if like is None else like.concepts[name].classes
        )
        for name in order
    }
    if like is not None and z.shape[1] != like.Z.shape[1]:
        raise InputError(f"The {what} rows have {z.shape[1]} features, the training rows {like.Z.shape[1]}.")
    return Labelled(z, label, found, rows.clusters if isinstance(rows, Rows) else None)


def as_matrix(rows: Any, what: str) -> Array:
    """Rows as a NumPy array of shape (n, d), in the type they came in; what is not in memory is refused."""
    if hasattr(rows, "compute") or hasattr(rows, "blocks"):
        raise InputError(f"The {what} rows are a {type(rows).__name__}; a report needs some thousand rows in memory.")
    z = np.asarray(on_numpy(rows))
    if z.dtype == object:  # a DataFrame of mixed columns
        try:
            z = z.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(f"The {what} rows are not numbers; pass features alone, without labels.") from None
    if z.ndim != 2 or z.dtype.kind not in "biuf" or not len(z):
        raise InputError(f"The {what} rows must be numbers of shape (n, d); got {z.dtype} of shape {z.shape}.")
    if not np.isfinite(z).all():
        raise InputError(f"The {what} rows hold NaN or infinity. Drop those rows or fill the values in.")
    return z


def named_concepts(concept: Any, name: str | Sequence[str]) -> dict[str, Array]:
    """Concepts by name, from one column, a mapping, a DataFrame or an array of shape (n, m)."""
    if isinstance(concept, Mapping) or hasattr(concept, "columns"):
        return {str(key): concept[key] for key in concept}
    values = on_numpy(concept)
    if getattr(values, "ndim", 1) == 2 and values.shape[1] > 1:
        m = values.shape[1]
        names = [f"{name} {i + 1}" for i in range(m)] if isinstance(name, str) else list(map(str, name))
        if len(set(names)) != m:
            raise InputError(f"There are {m} concepts and {len(names)} names ({', '.join(names)}); each needs its own.")
        return dict(zip(names, np.asarray(values).T, strict=True))
    one = [name] if isinstance(name, str) else list(name)
    if len(one) != 1:
        raise InputError(f"There is one concept and {len(one)} names ({', '.join(map(str, one))}). Pass one name.")
    return {str(one[0]): concept}


def _three(rows: Any, what: str) -> tuple[Any, Any, Any]:
    if not isinstance(rows, tuple | list) or len(rows) != 3:
        kind = f"a {type(rows).__name__}" + (f" of {len(rows)}" if isinstance(rows, tuple | list) else "")
        raise InputError(f"The {what} rows are three things, (Z, y, concept); got {kind}.")
    return rows[0], rows[1], rows[2]


def _values(label: ClassLabel) -> Array:
    column = np.empty(len(label.codes), dtype=object)
    column[:] = [label.classes[code] for code in label.codes]
    column[~label.present] = None
    return column
