"""Base class of the removers: transform, certificate, save."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from unspur._arrays import cast, to_numpy, to_python
from unspur._files import write_artifact
from unspur._resources import one_thread_if_small
from unspur._typing import Array
from unspur._validation import (
    check_rows,
    require_finite,
    restore_on_failure,
    validate_numeric,
)
from unspur._version import __version__
from unspur.certificate import Certificate, certify
from unspur.clusters import (
    cluster_codes,
    distinct_row_indices,
    duplicate_clusters,
    fingerprint,
    has_continuous_columns,
    row_hashes,
)
from unspur.exceptions import InputError, NothingRemovedWarning, UsedRowsWarning, warn
from unspur.labels import class_label, label_columns, main_column, require_no_missing, storable
from unspur.removers.concepts import read_concepts
from unspur.removers.seen_rows import SeenRows, rounded_hashes
from unspur.rows import backend_of, to_host
from unspur.solvers.descent import one_warning
from unspur.subspace import AffineMap, Subspace

#: Largest Dask array, in bytes as float64, whose rows a certificate brings to the host.
MAX_CERTIFICATE_BYTES = 2 * 10**9
#: Rows that are enough for a certificate.
CERTIFICATE_ROWS = 10_000


class Remover(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base class of the removers: `transform`, `certificate` and `save`.

    A subclass must accept concepts with any number of classes. Every parameter needs a default. Parameters `balance`,
    `missing_concept` and `strength` are optional. It implements ``fit(X, y=None, *, concept, sample_weight=None)``,
    inside ``self._fitting(X)``:

    - check parameters (`_validate_params`) and rows (`unspur._data.decode_fit_arguments`, or `check_rows`), and raise
      InputError for rows that are all the same;
    - sum over the rows on their own backend: `Covariances.of(rows)` or `Moments.of(rows, weighting)` of a
      `RowSource`, with ``in_float64=True`` where the type of the rows has too few digits;
    - call ``self._set_removal(removal, spurious, main)``, which sets `removal_` (AffineMap), `spurious_` and `main_`
      (Subspace), and applies the parameter `strength` if there is one;
    - set `trace_`, an instance of the class attribute `trace_type`, which has `stopped`, `to_dict`, `from_dict` and
      prints as a table;
    - set `classes_` (of y, or empty) and `concept_classes_` (of one concept, or a tuple for each of several);
    - call ``self._store_row_hashes(hash_finite_rows(self, X)[1])``, so that certificates notice rows of the fit;
    - call `warn_if_nothing_removed`.

    Closed forms derive from `ClosedFormRemover` (leace.py).
    Methods that test directions use `FitData` and `fit_each_concept` (direction_remover.py), as `JSE` and `INLP` do.
    """

    # Arguments of `fit` are routed through pipelines and searches without asking the user to request each.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"concept": True, "sample_weight": True}
    trace_type: ClassVar[type[Any]]
    _parameter_constraints: dict[str, list[Any]] = {}  # noqa: RUF012 — scikit-learn's protocol

    removal_: AffineMap
    spurious_: Subspace
    main_: Subspace
    #: Share of the removal that `removal_` applies.
    strength_: float = 1.0
    trace_: Any
    classes_: tuple[Any, ...]
    concept_classes_: tuple[Any, ...]
    training_hash_: str
    #: Rows that the fit used, and those of X_val, by which certificates recognise them; None if read from a file.
    _training_rows: SeenRows | None = None
    _validation_rows: SeenRows | None = None
    certificate_: Certificate
    _leaves_nothing: bool = False  # of the rows of the fit

    def _set_removal(self, removal: AffineMap, spurious: Subspace, main: Subspace) -> None:
        """Set both subspaces, and the map at the strength that was asked for."""
        self.strength_ = float(getattr(self, "strength", 1.0))
        removal = removal._collapsed() if self.strength_ == 1 else removal.scaled(self.strength_)
        self.removal_, self.spurious_, self.main_ = removal, spurious, main

    @property
    def n_removed_(self) -> int:
        """Number of directions that `transform` takes out, as a whole or in part: none at strength 0."""
        return self.spurious_.dim if self.strength_ else 0

    @property
    def strength_note(self) -> str:
        """What to say of a removal in part after "removed", or ""."""
        in_part = self.n_removed_ and self.strength_ < 1
        return f" with a strength of {self.strength_:g}" if in_part else ""

    def _store_row_hashes(self, training: SeenRows, validation: SeenRows | None = None) -> None:
        """Keep what certificates need to recognise rows of the fit and of X_val."""
        self._clear_row_hashes()
        self._add_row_hashes(training)
        self._validation_rows = validation

    def _add_row_hashes(self, rows: SeenRows) -> None:
        """Keep rows besides those kept before."""
        self._training_rows = rows if self._training_rows is None else self._training_rows.merged(rows)
        self.training_hash_ = self._training_rows.fingerprint

    def _clear_row_hashes(self) -> None:
        """Drop what an earlier fit kept."""
        for name in ("_training_rows", "_validation_rows", "certificate_"):
            self.__dict__.pop(name, None)

    def certificate(
        self,
        X: Array,
        y: Array | None = None,
        concept: Array | None = None,
        *,
        clusters: Array | None = None,
        random_state: Any = 0,
    ) -> Certificate:
        """Measure the removal on rows that were not used in the fit; warns if they were.

        Rows of the fit, and those of X_val, are recognised if they are equal once rounded to float32; rows in half
        precision, or rounded otherwise, are not. A remover read from a file recognises only the whole set of rows of
        the fit.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            The rows of a tensor or of a Dask array come to the host; a few thousand are enough. A Dask array above
            2 GB as float64 is refused.
        y : array of shape (n,), optional
            Main-task label, to measure how much of it is kept.
        concept : array of shape (n,) or (n, m), or DataFrame
            The concept to be removed; rows where it is missing are left out.
        clusters : array of shape (n,), optional
            Which rows belong together (frames of one film): they share a fold of the probes, and intervals count
            clusters. Without it, exact duplicates of a row are a cluster, and a note says so.
        """
        check_is_fitted(self, "removal_")
        main, y = main_column(y)
        X, y, concept, clusters = to_host(self._require_loadable(X), y, concept, clusters)
        z = validate_numeric(self, X, reset=False, dtype=[np.float64, np.float32])
        require_finite(self, z)
        kind: Any = getattr(self, "concept_type", "class")
        missing = getattr(self, "missing_concept", None)
        concepts = read_concepts(concept, len(z), kind=kind, missing=missing, varying=False)
        known = concepts.present
        notes = self._notes()
        together = None if clusters is None else cluster_codes(clusters, "clusters", len(z))
        task = None
        if y is not None:
            task = class_label(y, main, len(z))
            require_no_missing(task, concepts.names)
        numbers = label_columns(concept, len(z), "concept").values() if kind == "continuous" else ()
        labels = concepts.labels if task is None else (task, *concepts.labels)
        columns = [*numbers, *(np.where(label.present, label.codes, np.nan) for label in labels)]
        hashes = row_hashes(z)
        copied = None if clusters is not None else duplicate_clusters(hashes, columns)
        if copied is not None and has_continuous_columns(z[distinct_row_indices(hashes)]):
            together = copied
            measured = copied[known]
            if more := len(measured) - len(np.unique(measured)):
                rows = f"{more:,} of the {len(measured):,} rows measured"
                notes.append(f"{rows} are duplicates of others and count once with them")
        used, seen = self._used_rows_note(z[known]), self._training_rows
        if seen is None and not used:
            notes.append("read from a file: cannot tell whether some of these rows were used in the fit")
        elif seen is not None and seen.hashes is None:
            notes.append("fitted on too many rows: cannot tell whether some of these rows were used in the fit")
        if used:
            warn(f"{used}. Pass rows that were held out.", UsedRowsWarning)
            notes.append(used)
        with one_thread_if_small(z):
            self.certificate_ = certify(
                type(self).__name__,
                self.removal_,
                self.n_removed_,
                z[known],
                None if task is None else task.select(known),
                {label.name: label.select(known) for label in concepts.labels},
                concepts.by_name(known),
                tuple(notes),
                random_state,
                None if together is None else together[known],
            )
        return self.certificate_

    def _require_loadable(self, X: Array) -> Array:
        """The rows; raises for a Dask array too large to bring to the host."""
        if backend_of(X) != "dask":
            return X
        X = check_rows(self, X, reset=False)
        size = 8 * X.shape[0] * X.shape[1]
        if size > MAX_CERTIFICATE_BYTES:
            k = math.ceil(X.shape[0] / CERTIFICATE_ROWS)
            raise InputError(
                f"X is a Dask array of shape {X.shape}, {size / 1e9:.1f} GB as float64, and a certificate would load "
                f"all of it into memory; the limit is {MAX_CERTIFICATE_BYTES / 1e9:g} GB. A few thousand rows are "
                f"enough: pass X[::{k}], with y[::{k}] and concept[::{k}]."
            )
        return X

    def _used_rows_note(self, z: Array) -> str:
        """What to say of rows (n, d) some of which the fit has used, or ""."""
        hashes, found = rounded_hashes(z), list[str]()
        # Rows of a few small integers may be equal by chance.
        by_chance = not has_continuous_columns(cast(z[distinct_row_indices(hashes)], np.float32))
        unknown = self._training_rows is None or self._training_rows.hashes is None
        if (unknown or by_chance) and fingerprint(hashes) == self.training_hash_:
            found.append(f"{len(z):,} of the {len(z):,} rows measured were used in the fit")
        for seen, where in (
            (self._training_rows, "were used in the fit"),
            (self._validation_rows, "were validation rows, on which the directions were tested"),
        ):
            if seen is not None and seen.hashes is not None and not by_chance:
                same = int(np.isin(hashes, seen.hashes).sum())
                found += [f"{same:,} of the {len(z):,} rows measured {where}"] if same else []
        return f"{'; '.join(found)}; results on them are too optimistic" if found else ""

    def _notes(self) -> list[str]:
        """Notes of a certificate about the fit; subclasses add theirs."""
        notes = [] if self.n_removed_ else ["nothing was removed: transform does not change the rows"]
        if self.n_removed_ and self.strength_ < 1:
            notes.append(
                f"strength {self.strength_:g}: the concept is removed in part. The map can be inverted, so a linear "
                "classifier without a penalty may find all of it"
            )
        return [*notes, *filter(None, [self.reused_rows_warning])]

    @property
    def reused_rows_warning(self) -> str:
        """Warning that directions were tested on rows that they were estimated from, or ""."""
        if not (rows := getattr(self.trace_, "n_reused_rows", 0)):
            return ""
        return f"{rows:,} validation rows are training rows as well: tests on them are too optimistic."

    @contextmanager
    def _fitting(self, X: Array) -> Iterator[None]:
        """Context of a fit: restores the estimator if that fails, and merges convergence warnings into one."""
        with restore_on_failure(self), one_warning(), one_thread_if_small(X):
            yield

    def warn_if_nothing_removed(self, limit: int | None) -> None:
        """Warn if nothing was removed, unless the user asked for it with a limit of zero."""
        if self.spurious_.dim and not self.n_removed_:
            warn(
                f"strength is 0, so transform does not change the rows. At strength 1 it would remove "
                f"{self.spurious_.dim} of {self.removal_.ambient} directions.",
                NothingRemovedWarning,
            )
        if not self.spurious_.dim and limit != 0:
            warn(
                f"No spurious direction was found, so transform does not change the rows: {self.trace_.stopped}. "
                "The trace has every test.",
                NothingRemovedWarning,
            )

    def transform(self, X: Array) -> Array:
        """Rows with the concept removed, in their own dtype; a tensor returns a tensor on the same device.

        With `set_output` to a DataFrame rows come to the host, bfloat16 as float32.

        A Dask array gives a lazy one with the same chunks. Its rows are not checked, so NaN and infinity are not
        refused: they stay in their rows.
        """
        return output_of(self, self._cleaned(X))

    def _cleaned(self, X: Array) -> Array:
        """What `transform` returns, but never a DataFrame, whatever `set_output` or its configuration say."""
        check_is_fitted(self, "removal_")
        z = check_rows(self, X, reset=False)
        if backend_of(z) == "dask":
            from unspur.rows.dask import map_removal

            return map_removal(z, self.removal_)
        require_finite(self, z)
        return self.removal_(z)

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted remover to one safetensors file (no pickle); `unspur.load` reads it back."""
        write_artifact(path, *self._to_artifact(), overwrite=overwrite)

    def _to_artifact(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and metadata of the file."""
        from unspur.removers import REMOVERS  # which knows all removers

        check_is_fitted(self, "removal_")
        REMOVERS.require_saveable(self)
        names = getattr(self, "feature_names_in_", None)
        metadata = {
            "method": type(self).__name__,
            "version": __version__,
            "parameters": plain_parameters(self),
            "classes": storable(self.classes_),
            "concept_classes": storable(self.concept_classes_),
            "trace": self.trace_.to_dict(),
            "feature_names": None if names is None else [str(name) for name in names],
            "form": self.removal_.form,
            "strength": self.strength_,
            "training_hash": self.training_hash_,
            "certificate": self.certificate_.to_dict() if hasattr(self, "certificate_") else None,
        }
        removal = self.removal_
        arrays = {"centre": removal.centre, "right": removal.right, "left": removal.left, "offset": removal.offset}
        return arrays | {"spurious": self.spurious_.basis, "main": self.main_.basis}, metadata

    def _restore(self, arrays: dict[str, Array], metadata: dict[str, Any]) -> Self:
        """Become the fitted remover that was saved."""
        self._validate_params()
        saved = AffineMap(arrays["centre"], arrays["right"], arrays["left"], metadata["form"], arrays["offset"])
        self.strength_ = float(metadata["strength"])
        self.removal_ = saved._collapsed() if self.strength_ == 1 else saved
        self.spurious_, self.main_ = Subspace(arrays["spurious"]), Subspace(arrays["main"])
        if {self.spurious_.ambient, self.main_.ambient} != {self.removal_.ambient}:
            raise ValueError(f"its subspaces do not have the {self.removal_.ambient} features of its map")
        self.trace_ = self.trace_type.from_dict(metadata["trace"])
        self.classes_, self.concept_classes_ = (_tuples(metadata[name]) for name in ("classes", "concept_classes"))
        self.n_features_in_ = self.removal_.ambient
        self.training_hash_ = metadata["training_hash"]
        if hasattr(self.trace_, "most_evaluations"):
            self.n_iter_ = self.trace_.most_evaluations
        if metadata["certificate"] is not None:
            self.certificate_ = Certificate.from_dict(metadata["certificate"])
        if metadata["feature_names"] is not None:
            self.feature_names_in_ = np.array(metadata["feature_names"], dtype=object)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32", "float16"]
        return tags


def output_of(transformer: BaseEstimator, rows: Array) -> Array:
    """Transformed rows in a form that scikit-learn puts into the DataFrame that was asked for, if one was."""
    framed = _get_output_config("transform", transformer)["dense"] != "default"
    return to_numpy(rows) if framed else rows


#: Longest parameter that is saved, in characters: the folds of all rows are longer.
MAX_PARAMETER_CHARACTERS = 100_000


def _is_plain(value: Any) -> bool:
    """Whether a parameter can be saved, as a generator of random numbers cannot."""
    try:
        return len(json.dumps(value)) <= MAX_PARAMETER_CHARACTERS
    except TypeError:
        return False


def plain_parameters(estimator: BaseEstimator) -> dict[str, Any]:
    """Parameters of an estimator, as JSON holds them; those that it cannot hold are left out."""
    given = {name: to_python(value) for name, value in estimator.get_params(deep=False).items()}
    return {name: value for name, value in given.items() if _is_plain(value)}


def _tuples(value: Any) -> Any:
    """Nested lists as nested tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
