"""Pictures of what a removal does: of rows that are pictures themselves, and of where a network looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unspur._typing import Array, FloatArray, IntArray
from unspur.embed.images import square
from unspur.embed.reduction import Reduction
from unspur.exceptions import InputError
from unspur.heads import Head
from unspur.removers import Remover
from unspur.report.results import Content, Looks, PixelView
from unspur.report.views import Directions
from unspur.surgery.folding import through_removal

#: Largest difference between an embedding and its row, in standard deviations of a row's numbers, that is rounding:
#: rows kept in half precision, or made in bfloat16 on another device, differ by a few hundredths.
ROUNDING = 0.1
#: Longest side of a picture that is shown whole, in pixels.
SHOWN = 1024

#: Rows (n, d) -> pixels (n, h · w · colours); affine.
ToPixels = Callable[[Array], Array]


def pixel_view(
    directions: Directions, z: Array, clean: Array, chosen: IntArray, shape: Sequence[int], to_pixels: ToPixels | None
) -> PixelView:
    """Directions as pictures, and the `chosen` rows before and after; `to_pixels` where rows are not pixels yet."""
    shape = tuple(int(side) for side in shape)
    if len(shape) not in (2, 3) or min(shape) < 1 or (len(shape) == 3 and shape[2] != 3):
        raise InputError(f"image_shape is (height, width) or (height, width, 3); got {shape}.")

    def pictures(rows: Array) -> FloatArray:
        pixels = np.asarray(rows if to_pixels is None else to_pixels(rows), dtype=np.float64)
        if pixels.shape[0] != len(rows) or pixels.size != len(rows) * np.prod(shape):
            through = "" if to_pixels is None else " after to_pixels"
            raise InputError(
                f"A picture of shape {shape} has {np.prod(shape)} numbers; rows{through} have shape {pixels.shape}."
            )
        return pixels.reshape(len(rows), *shape)

    axes = directions.of("spurious", "main")
    # A difference, since the map may be affine: what is added to every picture is no part of a direction.
    zero = np.zeros((1, directions.columns.shape[0]))
    drawn = {axis: pictures(directions.columns.T[axis : axis + 1])[0] - pictures(zero)[0] for axis in axes}
    return PixelView(drawn, chosen, pictures(z[chosen]), pictures(clean[chosen]))


def looks_of(
    encoder: Any,
    content: Content | None,
    z: Array,
    remover: Remover,
    layers: tuple[Head, Head],
    chosen: IntArray,
    reduction: Any = None,
) -> Looks:
    """Grad-CAM of the `chosen` pictures under the last layers on rows as they are and on cleaned ones.

    ``M(u) = w · A(u) / n`` over the n positions u of the last feature map A, with w the last layer folded through the
    removal and the principal components before it: maps add up to the logit less the bias.
    """
    if content is None or content.kind != "image":
        raise InputError("Where a network looks can be shown in pictures only. Pass pictures of the test rows.")
    if not hasattr(encoder, "feature_maps"):
        raise InputError(f"{getattr(encoder, 'name', encoder)} is no network with feature maps; leave the encoder out.")
    prepared, pictures = [], []
    for row in chosen.tolist():  # one at a time: they may be large
        picture = content[row]
        prepared.append(encoder.prepare(picture))
        pictures.append(_as_shown(encoder, picture))
    maps = _feature_maps(encoder, prepared)
    reduction = as_reduction(reduction)
    _require_same_rows(maps.mean(axis=(2, 3)), z[chosen], reduction, encoder.name)
    cells = maps.shape[2] * maps.shape[3]
    weights = folded_weights(layers, remover, reduction)
    signed = {name: np.einsum("kdhw,d->khw", maps, w).astype(np.float32) / cells for name, w in weights.items()}
    return Looks(chosen, pictures, signed)


def folded_weights(layers: tuple[Head, Head], remover: Remover, reduction: Reduction | None) -> dict[str, FloatArray]:
    """Weights of either last layer on what the network makes, shape (d,)."""
    before, after = layers
    cleaned, _ = through_removal(remover.removal_, after.coef_.astype(np.float64), np.asarray(after.intercept_))
    found = {"before": before.coef_[0].astype(np.float64), "after": cleaned[0]}
    return found if reduction is None else {name: reduction.components @ weights for name, weights in found.items()}


def as_reduction(reduction: Any) -> Reduction | None:
    """A reduction, also from a fitted PCA of scikit-learn."""
    if reduction is None or isinstance(reduction, Reduction):
        return reduction
    if not hasattr(reduction, "components_") or not hasattr(reduction, "mean_") or getattr(reduction, "whiten", False):
        raise InputError(f"reduction is a Reduction, or a PCA without whitening; got a {type(reduction).__name__}.")
    return Reduction(np.asarray(reduction.mean_), np.asarray(reduction.components_).T)


def _feature_maps(encoder: Any, prepared: Sequence[Any]) -> FloatArray:
    """The last feature maps of prepared pictures, shape (k, d, h, w)."""
    found = []
    for at in range(0, len(prepared), 16):
        inputs = encoder.batch(prepared[at : at + 16])
        found.append(encoder.where.run(encoder.feature_maps, inputs).float().cpu().numpy())
    return np.concatenate(found).astype(np.float64)


def _require_same_rows(embedded: FloatArray, z: Array, reduction: Reduction | None, name: str) -> None:
    """Rows that are not this network's embeddings of these pictures would be explained by another network."""
    if reduction is not None and len(reduction.components) == embedded.shape[1]:
        embedded = reduction(embedded)
    again = "Pass the encoder that made the rows, pictures in their order, and the reduction, if there was one."
    if embedded.shape[1] != z.shape[1]:
        raise InputError(f"{name} makes {embedded.shape[1]} numbers of a picture; rows have {z.shape[1]}. {again}")
    spread = float(np.std(np.asarray(z, dtype=np.float64))) or 1.0
    away = float(np.sqrt(np.mean((embedded - z) ** 2))) / spread
    if not away <= ROUNDING:
        raise InputError(
            f"What {name} makes of the pictures is not what the rows are: they differ by {away:.2g} standard "
            f"deviations. {again}"
        )


def _as_shown(encoder: Any, picture: Any) -> Any:
    """The picture as the network is shown it: cut and scaled; or the whole, no larger than a figure needs."""
    from PIL import Image

    preparation = getattr(encoder, "preparation", None)
    if preparation is not None:
        return Image.fromarray(square(picture, preparation))
    scale = min(1.0, SHOWN / max(picture.size))
    return picture if scale == 1.0 else picture.resize([max(1, round(scale * side)) for side in picture.size])
