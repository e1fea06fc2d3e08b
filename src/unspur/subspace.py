"""Subspaces and the affine maps that remove or keep them: frozen values with thin factors.

Rows are points, so a map acts on ``x`` from the right. Only :meth:`AffineMap.matrix` forms a ``d × d`` matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy.linalg

from unspur._arrays import by_rows, exact_products, is_tensor, to_device_like
from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError

#: Share of its length outside a span up to which a direction counts as inside.
MAX_LENGTH_OUTSIDE_SHARE = 1e-8
#: Singular values of ``I − LᵀR`` up to this are rounding errors: a projection has none.
IDENTITY_TOL = 1e-8
#: Singular values below this share of the largest are rounding errors.
MIN_SINGULAR_SHARE = 1e-10


def _frozen(array: Array) -> FloatArray:
    """Float64 copy that cannot be written to."""
    copy = np.array(array, dtype=np.float64, order="C")
    copy.setflags(write=False)
    return copy


def _without_noise(difference: FloatArray, whole: FloatArray) -> FloatArray:
    """`difference` with zeros for columns that are rounding errors of those of `whole`."""
    lengths, before = np.linalg.norm(difference, axis=0), np.linalg.norm(whole, axis=0)
    return np.where(lengths > 1e-13 * before, difference, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class Subspace:
    """Linear subspace of R^d given by an orthonormal basis, shape (d, k); k may be 0.

    Build one with :meth:`empty`, :meth:`spanned_by` and :meth:`with_direction`, which keep the basis
    orthonormal to machine precision; the constructor only checks it.
    """

    basis: FloatArray

    def __post_init__(self) -> None:
        basis = _frozen(self.basis)
        if basis.ndim != 2 or basis.shape[1] > basis.shape[0]:
            raise InputError(f"A basis has shape (d, k) with k ≤ d; got {basis.shape}.")
        if not np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-10, rtol=0):
            raise InputError("The columns of a basis must be orthonormal. Use Subspace.spanned_by(vectors).")
        object.__setattr__(self, "basis", basis)

    @classmethod
    def empty(cls, ambient: int) -> Subspace:
        """The subspace {0} of R^ambient."""
        return cls(np.empty((ambient, 0)))

    @classmethod
    def spanned_by(cls, vectors: Array) -> Subspace:
        """Span of the columns of `vectors`, shape (d, m); dependent columns add nothing."""
        vectors = np.asarray(vectors, dtype=np.float64)
        if vectors.ndim != 2 or not np.all(np.isfinite(vectors)):
            raise InputError(f"Vectors are the finite columns of an array (d, m); got shape {vectors.shape}.")
        subspace = cls.empty(len(vectors))
        for column in vectors.T:
            largest = np.abs(column).max(initial=0.0)
            unit = column / largest if largest > 0 else column
            if np.linalg.norm(subspace.reject(unit)) > MAX_LENGTH_OUTSIDE_SHARE * np.linalg.norm(unit):
                subspace = subspace.with_direction(column)
        return subspace

    @property
    def dim(self) -> int:
        """Number of directions."""
        return int(self.basis.shape[1])

    def require_directions(self) -> None:
        """Raise InputError if there is no direction to project onto."""
        if not self.dim:
            raise InputError(
                "There is no direction to project onto: every row would become the same point. "
                "Remove the other subspace instead."
            )

    @property
    def ambient(self) -> int:
        """Dimension of the surrounding space."""
        return int(self.basis.shape[0])

    def component(self, vector: Array) -> FloatArray:
        """Orthogonal projection of a vector (d,), or of the columns of (d, m), onto the subspace."""
        return np.asarray(self.basis @ (self.basis.T @ vector), dtype=np.float64)

    def reject(self, vector: Array) -> FloatArray:
        """What is left of a vector (d,), or of the columns of (d, m), outside the subspace."""
        # Twice: one pass leaves a component of size eps / (share outside); a second removes it.
        once = np.asarray(vector, dtype=np.float64) - self.component(vector)
        return once - self.component(once)

    def _require_same_space(self, other: Subspace) -> None:
        if other.ambient != self.ambient:
            raise InputError(f"Subspaces of R^{self.ambient} and R^{other.ambient} cannot be compared.")

    def with_direction(self, vector: Array) -> Subspace:
        """Same subspace with one more direction: `vector` made orthogonal to it and given length one."""
        vector = np.asarray(vector, dtype=np.float64)
        if vector.shape != (self.ambient,):
            raise InputError(f"A direction of R^{self.ambient} has shape ({self.ambient},); got {vector.shape}.")
        largest = np.abs(vector).max(initial=0.0)
        if not np.isfinite(largest) or largest == 0:
            raise InputError(f"A direction needs a positive, finite length; its largest entry is {largest}.")
        vector = vector / largest  # avoids overflow and underflow of the length
        length = float(np.linalg.norm(vector))
        rest = self.reject(vector / length)
        outside = float(np.linalg.norm(rest))
        if outside <= MAX_LENGTH_OUTSIDE_SHARE:
            raise InputError("The direction already lies in the subspace; nothing would be added.")
        return Subspace(np.column_stack([self.basis, rest / outside]))

    def beside(self, other: Subspace) -> Subspace:
        """Span of both, for subspaces that are orthogonal to each other: this basis first, then the other's."""
        self._require_same_space(other)
        if self.dim and other.dim:
            return Subspace(np.column_stack([self.basis, other.basis]))
        return self if self.dim else other

    def union(self, other: Subspace) -> Subspace:
        """Span of both."""
        self._require_same_space(other)
        return Subspace.spanned_by(np.column_stack([self.basis, other.basis]))

    def angles(self, other: Subspace) -> FloatArray:
        """Principal angles in radians, ascending, shape (min(k, other k),)."""
        self._require_same_space(other)
        if not self.dim or not other.dim:
            return np.empty(0)
        return np.asarray(scipy.linalg.subspace_angles(self.basis, other.basis)[::-1], dtype=np.float64)

    def __repr__(self) -> str:
        return f"Subspace(dim={self.dim}, ambient={self.ambient})"


def principal_angles(a: Subspace, b: Subspace) -> FloatArray:
    """Principal angles in degrees, ascending, shape (min(a.dim, b.dim),): 0 is shared, 90 is orthogonal."""
    return np.degrees(a.angles(b))


def shared_variance(a: Subspace, b: Subspace, covariance: Array | None = None) -> float:
    """Share of directions in common, between 0 (orthogonal) and 1 (the smaller lies in the larger).

    ::

        ‖AᵀB‖²_F / min(dim)                                            the mean squared cosine of the principal angles
        ‖(AᵀΣA)^(−1/2) AᵀΣB (BᵀΣB)^(−1/2)‖²_F / min(dim)               with a covariance Σ of shape (d, d)

    With Σ it is the mean squared canonical correlation between the scores ``zA`` and ``zB`` of rows with that
    covariance: orthogonal directions share variance when rows correlate along them. Without it Σ = I. Directions
    along which Σ has no variance are left out.
    """
    a._require_same_space(b)
    if not a.dim or not b.dim:
        raise InputError(
            f"Shared variance needs a direction on both sides; got {a.dim} and {b.dim}. Test for dim == 0 first."
        )
    if covariance is None:
        return float(np.sum((a.basis.T @ b.basis) ** 2) / min(a.dim, b.dim))
    sigma = np.asarray(covariance, dtype=np.float64)
    if sigma.shape != (a.ambient, a.ambient) or not np.allclose(sigma, sigma.T, atol=1e-8 * np.abs(sigma).max()):
        raise InputError(f"covariance must be symmetric of shape ({a.ambient}, {a.ambient}); got {sigma.shape}.")
    values, vectors = np.linalg.eigh(sigma)
    if values[0] < -1e-8 * values[-1] or values[-1] <= 0:
        raise InputError(f"covariance must have eigenvalues ≥ 0, some positive; they reach down to {values[0]:.3g}.")
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    left, right = (scipy.linalg.orth(root @ s.basis, rcond=MIN_SINGULAR_SHARE) for s in (a, b))
    smaller = min(left.shape[1], right.shape[1])
    if not smaller:
        raise InputError("The covariance has no variance inside one of the subspaces; nothing can be shared.")
    return float(np.sum((left.T @ right) ** 2) / smaller)


@dataclass(frozen=True, eq=False, repr=False)
class AffineMap:
    """Affine map of rows with thin factors `right` R and `left` L, both of shape (d, k).

    ::

        form="remove":   x ↦ x − (x − c) R Lᵀ + offset      (offset 0 when made by `removing`)
        form="keep":     x ↦     (x − c) R Lᵀ + offset      (offset c when made by `keeping`)

    Orthogonal projections have R = L with orthonormal columns; oblique ones (LEACE, SPLINCE) do not.
    """

    centre: FloatArray
    right: FloatArray
    left: FloatArray
    form: Literal["remove", "keep"] = "remove"
    offset: FloatArray = field(default_factory=lambda: np.zeros(()))

    def __post_init__(self) -> None:
        centre, right, left = _frozen(self.centre), _frozen(self.right), _frozen(self.left)
        if centre.ndim != 1 or right.shape != left.shape or right.ndim != 2 or len(right) != len(centre):
            raise InputError(
                "An affine map needs a centre (d,) and two factors (d, k); "
                f"got {centre.shape}, {right.shape} and {left.shape}."
            )
        if self.form not in ("remove", "keep"):
            raise InputError(f"form is 'remove' or 'keep'; got {self.form!r}.")
        for name, value in (("centre", centre), ("right", right), ("left", left)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "offset", _frozen(np.broadcast_to(self.offset, centre.shape)))

    @classmethod
    def removing(cls, subspace: Subspace, centre: Array) -> AffineMap:
        """Orthogonal projection off `subspace` around `centre`; the identity when it is empty."""
        return cls(centre, subspace.basis, subspace.basis, "remove")

    @classmethod
    def keeping(cls, subspace: Subspace, centre: Array) -> AffineMap:
        """Orthogonal projection onto `subspace` around `centre`."""
        subspace.require_directions()
        return cls(centre, subspace.basis, subspace.basis, "keep", np.asarray(centre, dtype=np.float64))

    @property
    def ambient(self) -> int:
        """Dimension of the rows it takes and returns."""
        return int(self.centre.shape[0])

    @property
    def rank(self) -> int:
        """Rank of the linear part: d − k for a removal of k directions, k for a projection onto k."""
        width = self.right.shape[1]
        if not width:
            return self.ambient if self.form == "remove" else 0
        if self.form == "remove":  # rank(I_d − R Lᵀ) = d − k + rank(I_k − Lᵀ R)
            small = np.eye(width) - self.left.T @ self.right
            return int(self.ambient - width + np.linalg.matrix_rank(small, tol=IDENTITY_TOL))
        small = np.linalg.qr(self.right)[1] @ np.linalg.qr(self.left)[1].T
        return int(np.linalg.matrix_rank(small))

    def fold_into(self, weight: FloatArray, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The layer on rows before this map that equals the layer (`weight` (m, d), `bias` (m,)) after it.

        ::

            remove:   W' = W − (W L) Rᵀ,   b' = b + (W L)(Rᵀ c) + W · offset
            keep:     W' =     (W L) Rᵀ,   b' = b − (W L)(Rᵀ c) + W · offset
        """
        seen = weight @ self.left
        moved, shift = seen @ self.right.T, seen @ (self.right.T @ self.centre)
        fixed = bias + weight @ self.offset
        return (weight - moved, fixed + shift) if self.form == "remove" else (moved, fixed - shift)

    def __call__(self, x: Array) -> Array:
        """Image of one row (d,) or of many (..., d), in the dtype it came in (integers become float64).

        A tensor gives a tensor on its device, detached; half precision is computed in float32, block by block.
        """
        if is_tensor(x):
            return self._of_tensor(x.detach())
        x = np.asarray(x)
        if x.shape[-1:] != (self.ambient,):
            raise InputError(f"Rows have {self.ambient} features; got an array of shape {x.shape}.")
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        # float16 has no fast products and too few digits for them: computed in float32, returned as it came.
        work = np.promote_types(dtype, np.float32)
        centre, right, left, offset = (
            np.asarray(a, dtype=work) for a in (self.centre, self.right, self.left, self.offset)
        )
        # The flag was seen raised, once and not again, for rows and factors that were all finite.
        with np.errstate(invalid="ignore"):
            moved = ((x.astype(work, copy=False) - centre) @ right) @ left.T
        if self.form == "remove":
            np.subtract(x, moved, out=moved)
        moved += offset
        return moved.astype(dtype, copy=False)

    def _of_tensor(self, x: Array) -> Array:
        if tuple(x.shape[-1:]) != (self.ambient,):
            raise InputError(f"Rows have {self.ambient} features; got a tensor of shape {tuple(x.shape)}.")
        x = x if x.is_floating_point() else x.double()

        def image(rows: Array) -> Array:
            parts = (self.centre, self.right, self.left, self.offset)
            centre, right, left, offset = (to_device_like(part, rows) for part in parts)
            moved = ((rows - centre) @ right) @ left.T
            return (rows - moved if self.form == "remove" else moved) + offset

        out = x.new_empty(x.shape)
        with exact_products(x):
            by_rows(image, x.reshape(-1, self.ambient), out.view(-1, self.ambient))
        return out

    def compose(self, first: AffineMap) -> AffineMap:
        """The map `x ↦ self(first(x))`, again with thin factors."""
        if first.ambient != self.ambient:
            raise InputError(f"Cannot compose maps of R^{first.ambient} and R^{self.ambient}.")
        r1, l1, r2, l2 = first.right, first.left, self.right, self.left
        cross = l1.T @ r2
        if first.form == "remove" and self.form == "remove":  # I − R₁L₁ᵀ − R₂L₂ᵀ + R₁L₁ᵀR₂L₂ᵀ
            right, left = np.column_stack([r1, r2]), np.column_stack([l1 - l2 @ cross.T, l2])
        elif self.form == "remove":  # R₁L₁ᵀ (I − R₂L₂ᵀ)
            right, left = r1, _without_noise(l1 - l2 @ cross.T, l1)
        elif first.form == "remove":  # (I − R₁L₁ᵀ) R₂L₂ᵀ
            right, left = _without_noise(r2 - r1 @ cross, r2), l2
        else:  # R₁L₁ᵀ R₂L₂ᵀ
            right, left = r1 @ cross, l2
        form: Literal["remove", "keep"] = "remove" if first.form == self.form == "remove" else "keep"
        image = self(first(first.centre))
        return AffineMap(first.centre, right, left, form, image - first.centre if form == "remove" else image)

    def _collapsed(self) -> AffineMap:
        """The same map; a removal of all dimensions becomes a constant map, free of rounding errors of the rows."""
        if self.form == "keep" or self.right.shape[1] != self.ambient:
            return self
        if np.abs(np.eye(self.ambient) - self.left.T @ self.right).max() > IDENTITY_TOL:
            return self
        nothing = np.empty((self.ambient, 0))
        return AffineMap(self.centre, nothing, nothing, "keep", self.centre + self.offset)

    def scaled(self, strength: float) -> AffineMap:
        """The map that goes a share of the way: ``x ↦ x + strength · (self(x) − x)``, with `strength` in [0, 1].

        At 1 it is the map itself, and at 0 the identity. Between them a map that keeps a subspace is refused: it would
        subtract a share of all other directions, which needs factors as wide as the rows.
        """
        if not 0 <= strength <= 1:
            raise InputError(f"strength is a number from 0 (no removal) to 1 (the whole removal); got {strength}.")
        if strength == 1:
            return self
        if strength == 0:
            return AffineMap.removing(Subspace.empty(self.ambient), self.centre)
        if self.form == "keep":
            raise InputError(
                f"A projection onto a subspace has strength 0 or 1; got {strength:g}. Remove the other one."
            )
        return AffineMap(self.centre, self.right, strength * self.left, "remove", strength * self.offset)

    def matrix(self) -> FloatArray:
        """The linear part as a dense matrix M of shape (d, d), acting on rows as `x @ M`."""
        product = self.right @ self.left.T
        return np.eye(self.ambient) - product if self.form == "remove" else product

    def __repr__(self) -> str:
        return f"AffineMap({self.form}, rank={self.rank}, ambient={self.ambient})"
