"""How much rows say: bits to encode a label given the rows, and the variance of a feature that they explain.

The bits are the minimum description length of Voita and Titov (2020).
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import gammaln

from unspur._arrays import HALF_PRECISION, to_numpy
from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import IllConditionedWarning, InputError
from unspur.labels import class_label
from unspur.metrics.probes import Kind, checked_rows, prepare_probe


@dataclass(frozen=True, slots=True)
class DescriptionLength:
    """Code lengths of a label in bits.

    `bits` given the rows; `uniform_bits` = n log₂ k without any knowledge; `prior_bits` from the class frequencies so
    far. Unequal classes compress without the rows, so compare with `prior_bits` to measure leakage.
    """

    bits: float
    uniform_bits: float
    prior_bits: float
    rows: int

    @property
    def compression(self) -> float:
        """``uniform_bits / bits``, as published: 1 is no better than writing the label down."""
        return self.uniform_bits / self.bits

    @property
    def compression_over_prior(self) -> float:
        """``prior_bits / bits``: what the rows save.

        About 1 where they say nothing: up to 1.1 at 60 rows, and less with a rare class and few rows, whose probes
        predict worse than the frequencies (0.8 with a class of 25 among 500 rows of 50 features).
        """
        return self.prior_bits / self.bits

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        ratios = {"compression": self.compression, "compression_over_prior": self.compression_over_prior}
        return {**asdict(self), **ratios}

    def __str__(self) -> str:
        return (
            f"{self.bits:.0f} bits for {self.rows} labels given the rows, {self.prior_bits:.0f} given their "
            f"frequencies, {self.uniform_bits:.0f} given nothing: compression {self.compression:.2f}"
        )


def description_length(
    X: Array,
    concept: Array,
    *,
    probe: Kind = "linear",
    first: int | None = None,
    ratio: float = 2.0,
    penalty: float | None = None,
    missing_concept: Any = None,
    random_state: Any = None,
) -> DescriptionLength:
    """Prequential (online) code length of the concept given rows X of shape (n, d), in bits.

    Rows are put in random order and cut into blocks that end at ``first, first · ratio, first · ratio², …, n``. Labels
    of the first block cost log₂ k each; those of every later block ``−log₂ q(label)``, where q is a probe trained on
    all rows before the block, mixed with the uniform code in the share k/(t + k) after t rows so that no label costs
    more than about log₂(t + k). A probe that can memorise rows, as one with more features than rows can, encodes copies
    of a row seen before for next to nothing; leave copies out to measure what different rows say.

    Parameters
    ----------
    probe : "linear" or "mlp", as in `leakage`; not class-balanced here, since a code has to know the frequencies.
    first : rows of the first block; a thousandth of all, at least 16 a class, when None.
    ratio : growth of the blocks, above 1.
    penalty : of the linear probe, in units of the mean variance; chosen on rows set aside when None.
    """
    rows = checked_rows(X)
    label = class_label(concept, "concept", len(rows), missing=missing_concept)
    k, n = len(label.classes), int(label.present.sum())
    first = max(16 * k, -(-n // 1000)) if first is None else first
    if not (isinstance(first, Real) and 1 <= first < n and isinstance(ratio, Real) and 1 < ratio < np.inf):
        raise InputError(
            f"Blocks need 1 ≤ first < {n} rows and a finite ratio > 1; got first={first!r}, ratio={ratio!r}. Pass more "
            "rows, or a smaller first block."
        )
    first = int(first)
    rng = np.random.default_rng(random_state)
    order = rng.permutation(np.flatnonzero(label.present))
    codes = label.codes[order]
    bits = first * np.log2(k)
    start = first
    while start < n:
        end = max(start + 1, round(min(n, start * ratio)))
        q = _code(probe, rows[order[:start]], codes[:start], k, rows[order[start:end]], rng, penalty)
        bits -= float(np.log2(q[np.arange(end - start), codes[start:end]]).sum())
        start = end
    return DescriptionLength(float(bits), n * float(np.log2(k)), _frequency_bits(codes, k), n)


def _code(
    probe: Kind, seen: Array, codes: IntArray, k: int, new: Array, rng: np.random.Generator, penalty: float | None
) -> FloatArray:
    """Probabilities (m, k) for the labels of new rows from a probe of the rows seen."""
    counts = np.bincount(codes, minlength=k)
    share = k / (len(codes) + k)
    taught = np.flatnonzero(counts >= 2)
    if len(taught) < 2:
        return np.broadcast_to((counts + 0.5) / (counts.sum() + 0.5 * k), (len(new), k))
    used = np.isin(codes, taught)
    place = np.searchsorted(taught, codes[used])
    fitted = prepare_probe(probe, place, len(taught), np.ones(int(used.sum())), rng, penalty)(seen[used])
    q = np.full((len(new), k), share / k)
    q[:, taught] += (1 - share) * np.exp(fitted.log_proba(new))
    return q


def _frequency_bits(codes: IntArray, k: int) -> float:
    """Length of the Krichevsky–Trofimov code: −log₂ Π (count so far + ½) / (rows so far + k/2)."""
    counts = np.bincount(codes, minlength=k)
    n = counts.sum()
    nats = gammaln(n + k / 2) - gammaln(k / 2) - np.sum(gammaln(counts + 0.5) - gammaln(0.5))
    return float(nats / np.log(2))


def explained_variance(rows: Array, feature: Array) -> float:
    """Share of a feature's variance in % that a least-squares fit on rows explains: ``100 (1 − var(f − f̂)/var(f))``.

    `rows` (n, d) and `feature` (n,) are fitted and tested together, as in the paper (section 4.3). Use a large test set
    that no removal was fitted on and in which the features are independent, or one of them is rebuilt from the other;
    with n rows chance alone explains about ``100 d / n``.
    """
    residual, values = _residual(rows, feature)
    return float(100 * (1 - residual.var() / values.var()))


def reconstruction_error(rows: Array, feature: Array) -> float:
    """Root mean squared error of the same fit, in the unit of the feature; its square is the paper's MSE."""
    residual, _ = _residual(rows, feature)
    return float(np.sqrt(np.mean(residual**2)))


def _residual(rows: Array, feature: Array) -> tuple[FloatArray, FloatArray]:
    z = checked_rows(rows, "rows")
    values = np.asarray(to_numpy(feature), dtype=np.float64)
    if values.shape != (len(z),) or not np.all(np.isfinite(values)):
        raise InputError(f"feature must be {len(z)} finite numbers, one per row; got shape {values.shape}.")
    if not values.std() > 1e-13 * np.abs(values).max(initial=0.0):
        raise InputError("feature is constant: there is no variance to explain.")
    if len(z) < z.shape[1] + 2:
        raise InputError(
            f"There are {len(z)} rows of {z.shape[1]} columns: any feature is rebuilt perfectly. Pass more rows."
        )
    # Rows keep rounding errors along a removed axis, which the fit must not read.
    z = z.astype(np.float64)
    noise, size = _rounding_of_halves(rows, z), np.sqrt(np.mean(z**2, axis=0))
    z -= z.mean(axis=0)
    centred = values - values.mean()
    if noise is not None:  # errors of the stored numbers; in units of these they have a size of one
        axes, widths, _ = np.linalg.svd(z / np.where(noise > 0, noise, 1.0), full_matrices=False)
        real = widths > np.sqrt(len(z))
    else:  # errors of products of whole rows, which may have been wider before the removal
        axes, widths, _ = np.linalg.svd(z, full_matrices=False)
        kind = np.asarray(to_numpy(rows)).dtype
        eps = float(np.finfo(kind).eps) if kind.kind == "f" else 0.0
        real = widths > max(64 * eps, len(z) * float(np.finfo(np.float64).eps)) * widths[0]
        doubtful = int(np.sum(~real & (widths > 4 * eps * np.sqrt(len(z)) * np.linalg.norm(size))))
        if doubtful:
            warnings.warn(
                f"{doubtful} of {len(widths)} directions of the rows are so narrow beside the widest that they may "
                f"be rounding errors of {kind}, and were left out. Pass float64 rows, or bring columns to one scale.",
                IllConditionedWarning,
                stacklevel=3,
            )
    axes = axes[:, real]
    return centred - axes @ (axes.T @ centred), values


def _rounding_of_halves(rows: Array, z: FloatArray) -> FloatArray | None:
    """Twice the rounding error of each column of float16 or bfloat16 rows, (d,); None for rows of more digits."""
    eps = HALF_PRECISION.get(str(getattr(rows, "dtype", "")).removeprefix("torch."))
    if eps is None:
        return None
    spacing = np.where(z, np.ldexp(eps, np.frexp(z)[1] - 1), 0.0)  # between neighbouring numbers: errors are uniform
    return np.asarray(2.0 * np.sqrt(np.mean(spacing**2, axis=0) / 12.0))
