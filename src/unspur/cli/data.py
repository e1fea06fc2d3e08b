"""Read the rows that options name, and divide them into training, test and validation rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from unspur._text import counted
from unspur.cli.console import note
from unspur.cli.options import Conditions, RowOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from unspur._typing import Array
    from unspur.io import Table

#: Share of each group that becomes test rows, where there are none.
TEST_SHARE = 0.3
#: A column with more different values is no label if most rows have their own.
MAX_CLASSES = 10


@dataclass(frozen=True)
class Part:
    """Training, test or validation rows with their labels, as estimators take them."""

    table: Table
    task: str
    concept: tuple[str, ...]
    cluster: str | None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def y(self) -> Any:
        """The task, decoded, with its name."""
        from unspur.labels import class_label

        return class_label(self._values(self.task), self.task, len(self), min_classes=1)

    @property
    def concepts(self) -> Any:
        """The concepts, columns of a DataFrame."""
        import pandas as pd

        return pd.DataFrame({name: self._values(name) for name in self.concept})

    @property
    def clusters(self) -> Array | None:
        """Which rows belong together; None if all are independent."""
        return None if self.cluster is None else self._values(self.cluster)

    def _values(self, name: str) -> Array:
        """A column; whole numbers stay whole where some are missing."""
        from unspur.io import plain

        column = self.table.column(name)
        whole = column.dtype.kind in "iu" and column.isna().any()
        return column.to_numpy(dtype=object, na_value=None) if whole else plain(column)

    def rows(self) -> tuple[Any, ...]:
        """(X, y, concept), and clusters if there are any, as `compare` and `measure` take them."""
        return (self.table.X, self.y, self.concepts, *([] if self.cluster is None else [self.clusters]))

    def arguments(self, suffix: str = "") -> dict[str, Any]:
        """Arguments of `fit`; with the suffix "_val", those of validation rows."""
        given = {"X": self.table.X, "y": self.y, "concept": self.concepts, "clusters": self.clusters}
        return {f"{name}{suffix}": value for name, value in given.items() if value is not None}

    def select(self, chosen: Array) -> Part:
        """Some of the rows, by number or mask."""
        return replace(self, table=self.table.select(chosen))


def read_parts(rows: RowOptions, model: Any = None, more: Sequence[str] = ()) -> dict[str, Part]:
    """Training rows and, where options name them, test and validation rows, with checked labels.

    A saved `model` that was fitted on named columns gets these. `more` are columns that are no features.
    """
    from unspur.exceptions import InputError

    features = None if model is None else feature_names(model)
    files: dict[str, tuple[Path | None, Conditions]] = {
        "training": (rows.file, rows.where),
        "test": (rows.test or (rows.file if rows.test_where else None), rows.test_where),
        "validation": (rows.validation or (rows.file if rows.validation_where else None), rows.validation_where),
    }
    conditions = [name for _, where in files.values() for name, _ in where]
    parts: dict[str, Part] = {}
    for split, (path, where) in files.items():
        if path is None:
            continue
        if split != "training" and where and path == rows.file and not rows.where:
            raise click.UsageError(f"--{split}-where selects rows of FILE, so --where must select the training rows.")
        labels = rows.labels if path == rows.file else None
        apart = dict.fromkeys([*rows.columns, *rows.ignore, *more, *conditions])
        if split == "test" and rows.cluster is not None and path != rows.file:
            apart.pop(rows.cluster)  # test rows of another file need no clusters
        table = read(path, tuple(apart), features, labels, where, optional=split != "training" and path != rows.file)
        if table.features is not None:
            features = table.features
        known = parts["training"].table if parts else table
        if None not in (table.encoding, known.encoding) and table.encoding != known.encoding:
            raise InputError(f"{table.path} and {known.path} were not embedded alike; their columns differ in meaning.")
        if model is not None:
            table = as_fitted(model, table)
        cluster = rows.cluster if rows.cluster in table.columns else None
        parts[split] = Part(_checked(table, rows), rows.task, rows.concept, cluster)
    if model is None:
        _note_oddities(parts["training"])
    return parts


def read(
    path: Path, apart: Sequence[str], features: Any, labels: Path | None, where: Conditions, *, optional: bool = False
) -> Table:
    """The rows of a file that meet the conditions; columns that are `optional` need not be there."""
    from unspur.io import column_names, read_table

    if optional:
        there = column_names(path)
        apart = [name for name in apart if name in there or name in {column for column, _ in where}]
    return read_table(path, apart, features=features, labels=labels).where(where)


def feature_names(model: Any) -> list[str] | None:
    """Names of the columns that a model was fitted on; None if it was fitted on an array."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else list(names)


def as_fitted(model: Any, table: Table) -> Table:
    """The table with features that are named if those of the fit were; InputError if there are more or fewer."""
    import numpy as np
    import pandas as pd

    from unspur.exceptions import InputError

    X, names = np.asarray(table.X), feature_names(model)
    if X.shape[1] != model.n_features_in_:
        raise InputError(f"{table.path} has {X.shape[1]} features; the model was fitted on {model.n_features_in_}.")
    return replace(table, X=X if names is None else pd.DataFrame(X, columns=names, index=table.columns.index))


def _checked(table: Table, rows: RowOptions) -> Table:
    """The table with unknown concepts as missing values; LabelError for columns that are no labels."""
    from pandas.api import types

    from unspur.exceptions import LabelError
    from unspur.io import as_text

    for name in (rows.task, *rows.concept):
        column = table.column(name)
        if name in rows.concept and rows.missing_concept is not None:
            column = column.mask(as_text(column) == rows.missing_concept).convert_dtypes()
            table = replace(table, columns=table.columns.assign(**{name: column}))
        if name == rows.task and column.isna().any():
            gaps = counted(int(column.isna().sum()), "row")
            raise LabelError(f"{name} is missing in {gaps} of {table.path}. Fill it in, or leave these rows out.")
        classes = column.nunique()
        if types.is_float_dtype(column.dtype) or classes > max(MAX_CLASSES, column.notna().sum() / 2):
            raise LabelError(
                f"{name} of {table.path} has {classes:,} values, such as {column.dropna().iloc[0]}; a label has a few "
                "classes: whole numbers, booleans or text."
            )
    return table


def _note_oddities(part: Part) -> None:
    """Note rows without a concept, and features that number the rows."""
    import numpy as np

    for name in part.concept:
        if missing := int(part.table.column(name).isna().sum()):
            note(f"{missing:,} of {len(part):,} rows have no {name}; they are left out of its fit.")
    for name in part.table.features or ():
        values = part.table.X[name].to_numpy()
        if np.array_equal(values, np.round(values)) and len(np.unique(values)) == len(values):
            note(f"The feature {name} has another whole number in every row. If it is an id, pass --ignore {name}.")


def with_test_rows(parts: dict[str, Part], seed: int) -> dict[str, Part]:
    """The parts with test rows, which are some of the training rows if there are none.

    Clusters, and copies of a row, are all training rows or all test rows. A note says if splits share rows.
    """
    import numpy as np

    from unspur.clusters import duplicate_clusters, held_out_mask, row_hashes
    from unspur.compare import shared_rows

    if "test" not in parts:
        train = parts["training"]
        group = train.table.columns.groupby([train.task, *train.concept], dropna=False, sort=True).ngroup().to_numpy()
        clusters = train.clusters
        if clusters is None:
            clusters = duplicate_clusters(row_hashes(np.asarray(train.table.X)))
        held = held_out_mask(group, TEST_SHARE, np.random.default_rng(seed), clusters)
        parts = {**parts, "training": train.select(~held), "test": train.select(held)}
    _require_other_clusters(parts)
    rows = [np.asarray(parts[name].table.X) for name in ("training", "test", "validation") if name in parts]
    for sentence in shared_rows(*rows).values():
        note(sentence)
    return parts


def _require_other_clusters(parts: dict[str, Part]) -> None:
    """Raise InputError if training rows and others share a cluster."""
    from unspur.exceptions import InputError

    train = parts["training"].clusters
    for name, part in parts.items():
        if name == "training" or train is None or part.clusters is None:
            continue
        if both := set(train.tolist()) & set(part.clusters.tolist()):
            raise InputError(
                f"{len(both)} values of {part.cluster} are among the training rows and the {name} rows, such as "
                f"{min(both, key=str)!r}. Pass {name} rows of other clusters."
            )
