"""Operations that move pixels, equal to Pillow's, on uint8 batches `(B, C, H, W)`.

Nearest-neighbour maps are asked of Pillow itself, once per image size: transforming a picture of indices says where
every pixel comes from. Bicubic shears repeat Pillow's polynomial in double precision along the one axis that moves.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gradveil.transforms.grouping import Runs, by_sign
from gradveil.transforms.scratch import converted, scratch

Axis = Literal["x", "y"]
_SHEARED_AT_ONCE = 1 << 20  # pixels; measured, as `library.PIECE`


def translate(images: Tensor, magnitude: float, signs: Tensor, *, axis: Axis) -> Tensor:
    """Move by `magnitude` of the size along `axis` and fill black."""
    return by_sign(images, signs, partial(_translate, magnitude=magnitude, axis=axis))


def _translate(images: Tensor, runs: Runs, *, magnitude: float, axis: Axis) -> Tensor:
    _, channels, height, width = images.shape
    size, stride = (width, 1) if axis == "x" else (height, width)
    moved = torch.empty_like(images)
    source, target = images.view(-1), moved.view(-1)
    pixels = channels * height * width
    for start, stop, sign in runs:
        # Pillow's pixel x reads x + 0.5 + t, truncated. Published magnitudes are never within 1/1000 of an integer
        # there.
        shift = int((0.5 + magnitude * size * sign) // 1)
        # A shift of the flat array moves every line at once; what slips in from the next line, or was never written
        # because it would come from outside the array, is masked.
        offset = shift * stride
        low, high = max(start * pixels, -offset), min(stop * pixels, len(source) - offset)
        if high > low:
            target[low:high] = source[low + offset : high + offset]
        mask = _kept(shift, axis, channels, height, width).to(images.device)
        target[start * pixels : stop * pixels].view(-1, pixels).bitwise_and_(mask)
    return moved


@lru_cache(maxsize=64)
def _kept(shift: int, axis: Axis, channels: int, height: int, width: int) -> Tensor:
    """255 where a shift leaves a pixel of the image, 0 where it does not."""
    size = width if axis == "x" else height
    places = torch.arange(size) + shift
    kept = ((places >= 0) & (places < size)).to(torch.uint8) * 255
    plane = kept.expand(height, width) if axis == "x" else kept.view(-1, 1).expand(height, width)
    return plane.expand(channels, height, width).reshape(-1)


def shear(images: Tensor, magnitude: float, signs: Tensor, *, axis: Axis) -> Tensor:
    """Shear along `axis`, bicubic, black outside."""

    def slant(group: Tensor, runs: Runs) -> Tensor:
        done = torch.empty_like(group)
        for start, stop, sign in runs:
            _shear(group[start:stop], magnitude * sign, axis, done[start:stop])
        return done

    return by_sign(images, signs, slant)


def rotate(images: Tensor, magnitude: float) -> Tensor:
    """Turn counter-clockwise by `magnitude` degrees about the centre, nearest pixel, grey 128 outside."""
    source, fill = _rotation(magnitude, *images.shape[2:])
    return _look_up(images, source, fill)


def rotate_right(images: Tensor, magnitude: float) -> Tensor:
    """Turn clockwise by `magnitude` degrees about the centre, nearest pixel, grey 128 outside."""
    return rotate(images, -magnitude)


def zoom(images: Tensor, magnitude: float) -> Tensor:
    """Enlarge the centre `1 + magnitude` times, nearest pixel."""
    source, fill = _zoom(magnitude, *images.shape[2:])
    return _look_up(images, source, fill)


def flip_x(images: Tensor, magnitude: float) -> Tensor:
    """Mirror left and right."""
    return images.flip(3)


def cutout(images: Tensor, magnitude: float) -> Tensor:
    """Paint a centred square of `magnitude` times the shorter side in grey 128."""
    height, width = images.shape[2:]
    side = int(magnitude * min(height, width) + 0.5)
    top, left = (height - side) // 2, (width - side) // 2
    painted = images.clone()
    painted[:, :, top : top + side, left : left + side] = 128
    return painted


def _look_up(images: Tensor, source: Tensor, fill: Tensor) -> Tensor:
    planes = images.view(images.shape[0] * images.shape[1], -1)
    moved = planes.gather(1, source.to(images.device).expand(len(planes), -1))
    inside, outside = fill.to(images.device)
    return moved.bitwise_and_(inside).bitwise_or_(outside).view(images.shape)


Map = Callable[[Image.Image], Image.Image]


@lru_cache(maxsize=64)
def _rotation(degrees: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    return _nearest_map(lambda image: image.rotate(degrees), height, width, outside=128)


@lru_cache(maxsize=64)
def _zoom(magnitude: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    step = 1 / (1 + magnitude)
    corner = (1 - step) / 2
    matrix = (step, 0, corner * width, 0, step, corner * height)
    size = (width, height)
    return _nearest_map(lambda image: image.transform(size, Image.Transform.AFFINE, matrix), height, width, outside=0)


def _nearest_map(call: Map, height: int, width: int, *, outside: int) -> tuple[Tensor, Tensor]:
    """Where each pixel comes from `(H * W,)`, and two byte masks `(2, H * W)`: 255 inside, `outside` outside."""
    indices = np.arange(1, height * width + 1, dtype=np.int32).reshape(height, width)
    source = torch.from_numpy(np.array(call(Image.fromarray(indices)))).view(-1).to(torch.int64)
    inside = source > 0
    masks = torch.stack([inside.to(torch.uint8) * 255, (~inside).to(torch.uint8) * outside])
    return (source - 1).clamp_(min=0), masks


def _shear(images: Tensor, slope: float, axis: Axis, out: Tensor) -> None:
    batch, channels, height, width = images.shape
    where, fraction, inside = (part.to(images.device) for part in _shear_map(slope, axis, height, width))
    planes = images.view(batch * channels, -1)
    done = out.view(planes.shape)
    step = max(1, _SHEARED_AT_ONCE // planes.shape[1])
    for start in range(0, len(planes), step):
        part = planes[start : start + step]
        taps = scratch("taps", (len(part), where.numel()), torch.uint8, part.device)
        if part.device.type == "cpu":  # numpy takes two thirds of the time; "clip" only spares it a buffer
            np.take(part.numpy(), where.view(-1).numpy(), axis=1, out=taps.numpy(), mode="clip")
        else:
            torch.gather(part, 1, where.view(-1).expand(len(part), -1), out=taps)
        wide = converted(taps, torch.int16, "taps").view(len(part), *where.shape)
        value = converted(_bicubic(wide, fraction, axis, (height, width)), torch.int16, "bytes")
        done[start : start + step] = value.clamp_(0, 255).bitwise_and_(inside).view(len(part), -1)


def _bicubic(taps: Tensor, fraction: Tensor, axis: Axis, size: tuple[int, int]) -> Tensor:
    """Pillow's polynomial, operation by operation; int16 holds the differences, only the powers need doubles."""
    height, width = size
    if taps.ndim == 4:
        v1, v2, v3, v4 = taps.unbind(1)
    elif axis == "y":
        v1, v2, v3, v4 = (taps[:, offset : offset + height] for offset in range(4))
    else:
        v1, v2, v3, v4 = (taps[:, :, offset : offset + width] for offset in range(4))
    first, last = (scratch(name, v1.shape, torch.int16, v1.device) for name in ("first", "last"))
    torch.sub(v1, v2, out=first)
    p4 = torch.sub(v4, v3, out=last).sub_(first)
    p3 = first.sub_(p4)
    value = converted(p4, torch.float64, "value").mul_(fraction).add_(converted(p3, torch.float64))
    p2 = torch.sub(v3, v1, out=last)
    value.mul_(fraction).add_(converted(p2, torch.float64))
    return value.mul_(fraction).add_(converted(v2, torch.float64))


@lru_cache(maxsize=64)
def _shear_map(slope: float, axis: Axis, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where the taps lie, the position between the middle two `(H, W)`, and the mask `(H, W)`: all bits inside.

    The taps of neighbouring pixels along the axis overlap, so that `(H + 3, W)` or `(H, W + 3)` indices hold them
    all; where rounding makes neighbours jump apart, `(4, H, W)` indices do.
    """
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    moved, still, size = (rows, columns, height) if axis == "y" else (columns, rows, width)
    slanted = slope * (still + 0.5)
    position = slanted + (moved + 0.5)
    inside = (position >= 0) & (position < size)
    position = position - 0.5
    base = np.floor(position)
    dim = 0 if axis == "y" else 1
    if (np.diff(base, axis=dim) == 1).all():
        first = base.take([0], axis=dim) - 1
        reach = np.arange(size + 3).reshape((-1, 1) if axis == "y" else (1, -1))
        taps = np.clip(first + reach, 0, size - 1)
        other = np.arange(width)[None, :] if axis == "y" else np.arange(height)[:, None]
    else:
        taps = np.clip(np.stack([base + offset for offset in (-1, 0, 1, 2)]), 0, size - 1)
        other = still
    taps = taps.astype(np.int64)
    where = taps * width + other if axis == "y" else other * width + taps
    mask = -inside.astype(np.int16)
    return torch.from_numpy(where), torch.from_numpy(position - base), torch.from_numpy(mask)
