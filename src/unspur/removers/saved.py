"""Checks of a saved removal; the file need not be trusted.

Types and shapes are checked before an array is read (`require_shapes`), and values once the remover is restored
(`require_sound`). In particular, the map goes the share α of the way to a projection, the `strength` of the file:
``LᵀR = αI``, so that no factor is zero or stretched. The subspace stored beside it spans a factor of the map, and the
map moves no row in other directions. Trace and certificate check their own numbers when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unspur._reading import brief
from unspur._typing import Array, FloatArray
from unspur._validation import OTHER_NAMES
from unspur.io.artifact import Shapes
from unspur.subspace import Subspace

if TYPE_CHECKING:
    from unspur.removers.base import Remover

#: Largest number in a saved removal: transformed rows stay finite.
MAX_NUMBER = 1e100
#: Largest deviation of ``LᵀR / α`` from the identity; conditions up to 1e8 leave some 1e-8 of rounding.
PROJECTION_TOL = 1e-3
#: Share of a factor's column that may lie outside the stored basis (`Subspace.spanned_by` leaves out 1e-8).
MAX_OUTSIDE_SHARE = 1e-6
#: Share of a factor below which it has no component along a direction of the basis.
MIN_FACTOR_SHARE = 1e-12
_SCALAR = (str, int, float, type(None))


def require_shapes(found: Shapes) -> None:
    """Raise ValueError unless the arrays of a file have types and shapes that fit together."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name in ("centre", "offset", "right", "left", "spurious", "main"):
        if name not in found:
            raise ValueError(f"there is no array {name!r}")
        kind, *shape = found[name]
        shapes[name] = tuple(shape)
        if kind != "F64":
            raise ValueError(f"{name!r} is of type {kind}, and not of F64")
    if len(shapes["centre"]) != 1 or not shapes["centre"][0]:
        raise ValueError(f"'centre' has shape {shapes['centre']}, which is no row of features")
    (d,) = shapes["centre"]
    if shapes["offset"] != (d,):
        raise ValueError(f"'offset' has shape {shapes['offset']} where 'centre' has {shapes['centre']}")
    for name in ("right", "left", "spurious", "main"):
        if len(shapes[name]) != 2 or shapes[name][0] != d or shapes[name][1] > d:
            raise ValueError(f"{name!r} has shape {shapes[name]}; of {d} features it is (d, k) with d = {d} and k ≤ d")
    if shapes["right"] != shapes["left"]:
        raise ValueError(f"the factors of the map have shapes {shapes['right']} and {shapes['left']}")


def require_layer(found: Shapes) -> None:
    """Raise ValueError unless coefficients (k, d) and intercepts (k,) of a layer fit the removal."""
    for name, dims in (("coef", 2), ("intercept", 1)):
        if name not in found:
            raise ValueError(f"there is no array {name!r}")
        kind, *shape = found[name]
        if kind != "F64" or len(shape) != dims:
            raise ValueError(f"{name!r} is of type {kind} and shape {tuple(shape)}")
    if found["coef"][1] != found["intercept"][1] or found["coef"][2] != found["centre"][1]:
        raise ValueError(f"coefficients of shape {found['coef'][1:]} do not go with the removal")


def require_numbers(arrays: Mapping[str, Array]) -> None:
    """Raise ValueError unless all numbers are finite and not too large."""
    for name, array in arrays.items():
        if not np.abs(array).max(initial=0.0) <= MAX_NUMBER:  # also of NaN
            raise ValueError(f"{name!r} holds NaN, infinity or numbers as large")


def require_sound(remover: Remover) -> None:
    """Raise ValueError unless the parts of a restored remover belong together."""
    removal, strength = remover.removal_, remover.strength_
    if not 0 <= strength <= 1:
        raise ValueError(f"its strength is {strength}, which is not between 0 and 1")
    error = removal.left.T @ removal.right - strength * np.eye(removal.right.shape[1])
    if not np.abs(error).max(initial=0.0) <= PROJECTION_TOL * strength:
        of = "" if strength == 1 else f" of strength {strength:g}"
        raise ValueError(f"its map is no projection{of}: a factor is zero, stretched or of another map")
    keeps = removal.form == "keep"
    if keeps and strength != 1:
        raise ValueError(f"it projects onto a subspace, with a strength of {strength:g} and not of 1")
    name, subspace = ("main", remover.main_) if keeps else ("spurious", remover.spurious_)
    if not strength:
        if removal.right.shape[1]:
            raise ValueError("its strength is 0, and its map removes directions")
    elif not any(_spans(factor, subspace) for factor in (removal.right, removal.left)):
        raise ValueError(f"its map is that of another subspace than {name!r} (of dimension {subspace.dim})")
    if keeps and not subspace.dim and remover.spurious_.dim < removal.ambient:
        raise ValueError("it projects onto no direction: every row would become the same point")
    if not np.array_equal(removal.offset, removal.centre if keeps else np.zeros(removal.ambient)):
        raise ValueError(f"a map that {'keeps' if keeps else 'removes'} directions moves no row beside them")
    for classes in (remover.classes_, remover.concept_classes_):
        _require_classes(classes)
    for attribute in ("feature_names_in_", OTHER_NAMES):
        names = getattr(remover, attribute, None)
        if names is not None and len(names) != removal.ambient:
            raise ValueError(f"it has {len(names)} names for {removal.ambient} features")
    remover._validate_params()
    if min(getattr(remover.trace_, name, 0) for name in ("columns", "removed", "rank", "iterations")) < 0:
        raise ValueError("the trace has a negative count")
    certificate = getattr(remover, "certificate_", None)
    if certificate is not None and (
        certificate.method != type(remover).__name__
        or certificate.removed != remover.n_removed_
        or certificate.rank > removal.ambient
    ):
        said = f"{brief(certificate.method, 40)}, {certificate.removed} removed, rank {certificate.rank}"
        raise ValueError(f"its certificate is that of another removal ({said})")


def _spans(factor: FloatArray, subspace: Subspace) -> bool:
    """Whether the columns of a factor (d, k) span the subspace, up to rounding."""
    if not factor.shape[1] or not subspace.dim:
        return bool(factor.shape[1] == subspace.dim)
    lengths = np.linalg.norm(factor, axis=0)
    if not lengths.all():
        return False
    unit = factor / lengths
    inside = subspace.basis.T @ unit
    within = np.abs(unit - subspace.basis @ inside).max() <= MAX_OUTSIDE_SHARE
    return bool(within and np.linalg.matrix_rank(inside, tol=MIN_FACTOR_SHARE) == subspace.dim)


def _require_classes(classes: tuple[Any, ...]) -> None:
    for value in classes:
        for one in value if isinstance(value, tuple) else (value,):
            if not isinstance(one, _SCALAR):
                raise ValueError(  # noqa: TRY004 — of what a file holds
                    f"a class is {brief(repr(one), 40)}, which is neither a text nor a number"
                )
