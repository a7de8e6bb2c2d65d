"""From a transformed picture back, operation by operation, in closed form as far as there is one.

`known` `(B, 1, H, W)` follows which pixels of the original are still to be seen. `before`, public images of the same
kind as they looked just before the operation, helps where an operation forgets: grey levels, range, side of a fold.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from gradveil.attacks.surrogates import MOVES, pivot, shear_linearly, smooth, sources
from gradveil.transforms.library import Operation

# (images (B, C, H, W) in [0, 1], the operation, its sign, public images or None) -> images.
InverseTone = Callable[[Tensor, Operation, int, Tensor | None], Tensor]
# The same with known (B, 1, H, W), which pixels that move change.
InverseMove = Callable[[Tensor, Tensor, Operation, int, Tensor | None], tuple[Tensor, Tensor]]
_ROUNDS = 8  # of approximation where an operation mixes neighbours


def inverse(
    images: Tensor, steps: Sequence[tuple[Operation, int]], stages: Sequence[Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Undo `steps`, the last one first; `stages[i]` are public images before step i.

    Returns pictures and what of them is known, between 0 and 1. What is not known is guessed from around it, or is what public
    images have there.
    """
    known = torch.ones_like(images[:, :1])
    for number in reversed(range(len(steps))):
        op, sign = steps[number]
        before = None if stages is None else stages[number]
        if op.name in INVERSE_TONES:
            images = INVERSE_TONES[op.name](images, op, sign, before).clamp(0, 1)
        elif op.name in INVERSE_MOVES:
            images, known = INVERSE_MOVES[op.name](images, known, op, sign, before)
            images = images.clamp(0, 1)
    return images, known


def _invert(images: Tensor, op: Operation, sign: int, before: Tensor | None) -> Tensor:
    return 1 - images


def _solarize(images: Tensor, op: Operation, sign: int, before: Tensor | None) -> Tensor:
    threshold = op.magnitude / 255
    kept_fits, turned_fits = images < threshold, 1 - images >= threshold
    if before is None:
        return torch.where(turned_fits & ~kept_fits, 1 - images, images)
    # Which side of the fold: the one that is more often seen there.
    usual = before.mean(0, keepdim=True)
    turned_nearer = (1 - images - usual).abs() < (images - usual).abs()
    return torch.where(turned_fits & (turned_nearer | ~kept_fits), 1 - images, images)


def _unblend(images: Tensor, op: Operation, sign: int, before: Tensor | None) -> Tensor:
    still = pivot(op, images)
    return still + (images - still) / (1 + op.magnitude * sign)


def _equalize(images: Tensor, op: Operation, sign: int, before: Tensor | None) -> Tensor:
    if before is None:
        return images
    # The order of the pixels is what is left: the n-th darkest gets what the n-th darkest has elsewhere.
    usual = before.flatten(2).sort(2).values.mean(0)
    order = images.flatten(2).argsort(dim=2, stable=True)
    return torch.zeros_like(images).flatten(2).scatter(2, order, usual.expand(order.shape)).view(images.shape)


def _autocontrast(images: Tensor, op: Operation, sign: int, before: Tensor | None) -> Tensor:
    if before is None:
        return images
    low, high = before.amin((2, 3)).mean(0).view(1, -1, 1, 1), before.amax((2, 3)).mean(0).view(1, -1, 1, 1)
    return low + images * (high - low)


def _sharpness(images: Tensor, op: Operation, sign: int, before: Tensor | None) -> Tensor:
    # All factors of the map lie between 0.38 and 1.62, so that adding what is missing converges.
    found = images
    for _ in range(_ROUNDS):
        found = found + images - (found - op.magnitude * sign * (smooth(found) - found))
    return found


def _shear(images: Tensor, known: Tensor, op: Operation, sign: int, before: Tensor | None) -> tuple[Tensor, Tensor]:
    seen = shear_linearly(known, op, -sign)
    kept = (seen > 0.5).to(images.dtype)
    return _fill(shear_linearly(images, op, -sign), kept, before)


def _move(images: Tensor, known: Tensor, op: Operation, sign: int, before: Tensor | None) -> tuple[Tensor, Tensor]:
    source, inside, _ = (part.to(images.device) for part in sources(op, sign, *images.shape[2:]))
    source = source[inside]

    def put_back(values: Tensor) -> Tensor:
        empty, moved = torch.zeros_like(values).flatten(2), values.flatten(2)[..., inside]
        return empty.index_add(2, source, moved).view(values.shape)

    # A pixel that went to several places comes back as their mean, weighted by what is known of them.
    weights = put_back(known)
    return _fill(put_back(images * known) / weights.clamp_min(1e-6), (weights > 0).to(images.dtype), before)


def _fill(images: Tensor, known: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """What is not known becomes the public images' mean, or else what is known around it."""
    usual = before.mean(0, keepdim=True) if before is not None else _surroundings(images * known, known)
    return images * known + usual * (1 - known), known


def _surroundings(images: Tensor, weights: Tensor) -> Tensor:
    """A weighted mean of what lies near, for every pixel; from as far away as there is anything."""
    height, width = images.shape[2:]
    near = images / weights.clamp_min(1e-6)
    if height == width == 1:
        return near
    pad = (0, width % 2, 0, height % 2)
    halves = [F.avg_pool2d(F.pad(values, pad), 2) for values in (images, weights)]
    far = F.interpolate(_surroundings(halves[0], halves[1]), scale_factor=2, mode="bilinear", align_corners=False)
    trust = weights.clamp(0, 1)
    return near * trust + far[..., :height, :width] * (1 - trust)


INVERSE_TONES: dict[str, InverseTone] = {
    "invert": _invert,
    "solarize": _solarize,
    **dict.fromkeys(("brightness", "contrast", "color"), _unblend),
    "equalize": _equalize,
    "autocontrast": _autocontrast,
    "sharpness": _sharpness,
}
INVERSE_MOVES: dict[str, InverseMove] = {"shear_x": _shear, "shear_y": _shear, **dict.fromkeys(sorted(MOVES), _move)}
