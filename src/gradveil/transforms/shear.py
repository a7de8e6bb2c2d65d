"""Bicubic shears along one axis, bit-equal to Pillow, on uint8 batches `(B, C, H, W)`.

Pillow puts a polynomial through four neighbouring pixels, the taps, evaluates it in doubles and truncates. Floats with
an error below `_DOUBT` truncate alike unless the value is nearly whole. So all pixels are computed in floats, and the
few doubtful ones again in doubles, operation by operation. Four equal taps leave no doubt: doubles then give their
level exactly, and floats that are too large by `_DOUBT` truncate to it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gradveil.transforms.grouping import Numbers, Runs, work_by_sign
from gradveil.transforms.scratch import convert, scratch

Axis = Literal["x", "y"]
Doubles = npt.NDArray[np.float64]
_AT_ONCE = 1 << 20  # values; measured, as `library.PIECE`
# Values are kept above 1204 and below 1611, between two powers of two: there the last 13 bits of a float are what
# comes after the point. With _DOUBT added, the nearly whole are those with zeros from 1/2 to 2 _DOUBT.
_BASE = 1280
_DOUBT = 2.0**-11
_FRACTION = 0b1_1111_1111_1000


def shear(images: Tensor, magnitude: float, signs: Tensor, *, axis: Axis) -> Tensor:
    """Shear along `axis`, bicubic, black outside."""
    slant = _slant(magnitude, axis, *images.shape[2:])
    step = max(1, _AT_ONCE // images[0].numel())

    def work(group: Tensor, runs: Runs) -> Tensor:
        done = torch.empty_like(group)
        for start in range(0, len(group), step):
            stop = start + step
            inside = [
                (max(a, start) - start, min(b, stop) - start, sign) for a, b, sign in runs if a < stop and b > start
            ]
            _shear(group[start:stop], inside, slant, done[start:stop])
        return done

    return work_by_sign(images, signs, work)


@dataclass(frozen=True)
class _Slant:
    """Both shears of a plane, the one with sign -1 first: pixel i of L lies between the taps i + (0, 1, 2, 3) apart of N."""

    where: Tensor
    """`(2, N)`, where in the plane each tap is."""
    apart: int
    pitch: int
    """Pixels from one row to the next; those beyond the image's width are not part of it."""
    fraction: Doubles
    """`(2, L)`, the position between the middle two taps."""
    weights: Tensor
    """`(2, 4, L)` float32, what the taps contribute; nothing outside."""
    base: Tensor
    """`(2, L)` float32, what is added to them; outside, something that leaves no doubt."""


def _shear(images: Tensor, runs: Runs, slant: _Slant, out: Tensor) -> None:
    _, channels, height, width = images.shape
    planes = images.view(-1, height * width)
    apart, length = slant.apart, slant.fraction.shape[1]
    parts = [(slice(start * channels, stop * channels), max(0, sign)) for start, stop, sign in runs]
    taps = scratch("taps", (len(planes), slant.where.shape[1]), torch.uint8, images.device)
    for rows, sign in parts:
        _gather(planes[rows], slant.where[sign].to(images.device), taps[rows])
    pixels = convert(taps, torch.float32)
    value = scratch("value", (len(planes), length), torch.float32, images.device)
    for rows, sign in parts:
        total, weights = slant.base[sign].to(images.device), slant.weights[sign].to(images.device)
        for number in range(4):
            tap = pixels[rows, number * apart : number * apart + length]
            total = torch.addcmul(total, tap, weights[number], out=value[rows])
    levels = convert(value, torch.int16, "bytes")
    places = _doubtful_places(value, taps, apart)
    if len(places):
        plane, pixel = np.divmod(places, length)
        signs = np.repeat([sign for _, sign in parts], [rows.stop - rows.start for rows, _ in parts])[plane]
        around = plane * taps.shape[1] + pixel + apart * np.arange(4)[:, None]
        between = taps.take(torch.from_numpy(around).to(taps.device)).cpu().numpy().astype(np.float64)
        exact = (np.floor(_polynomial(between, slant.fraction[signs, pixel])) + _BASE).astype(np.int16)
        # Not put_, which torch refuses where training asks for deterministic algorithms.
        levels.view(-1)[torch.from_numpy(places).to(taps.device)] = torch.from_numpy(exact).to(taps.device)
    levels.clamp_(_BASE, _BASE + 255)  # conversion to a byte takes the base away, a multiple of 256
    out.view(-1, height, width).copy_(levels.as_strided((len(planes), height, width), (length, slant.pitch, 1)))


def _gather(planes: Tensor, where: Tensor, out: Tensor) -> None:
    if planes.device.type == "cpu":  # numpy takes two thirds of the time; "clip" only spares it a buffer
        np.take(planes.numpy(), where.numpy(), axis=1, out=out.numpy(), mode="clip")
    else:
        torch.gather(planes, 1, where.expand(len(planes), -1), out=out)


def _doubtful_places(value: Tensor, taps: Tensor, apart: int) -> Numbers:
    """Which values, numbered through, are nearly whole and lie between taps that differ; `value` is overwritten."""
    length = value.shape[1]
    changes = scratch("changes", (len(taps), length + 2 * apart), torch.uint8, taps.device)
    torch.bitwise_xor(taps[:, apart:], taps[:, :-apart], out=changes)
    uneven = scratch("uneven", value.shape, torch.uint8, taps.device)
    torch.bitwise_or(changes[:, :length], changes[:, apart:-apart], out=uneven).bitwise_or_(changes[:, 2 * apart :])
    fraction = value.view(torch.int32).bitwise_and_(_FRACTION)
    if taps.device.type == "cpu":  # comparisons are several times quicker in numpy
        whole = scratch("whole", value.shape, torch.uint8, taps.device).numpy()
        np.equal(fraction.numpy(), 0, out=whole.view(np.bool_))
        np.minimum(whole, uneven.numpy(), out=whole)
        return np.flatnonzero(whole.view(np.bool_))
    places: Numbers = ((fraction == 0) & (uneven != 0)).view(-1).nonzero().view(-1).cpu().numpy()
    return places


def _polynomial(taps: Doubles, fraction: Doubles) -> Doubles:
    """Pillow's value between `(4, ...)` taps, with its roundings: differences of levels do not round, products do."""
    v1, v2, v3, v4 = taps
    p2, p4 = v3 - v1, (v4 - v3) - (v1 - v2)
    p3 = (v1 - v2) - p4
    value: Doubles = ((p4 * fraction + p3) * fraction + p2) * fraction + v2
    return value


@lru_cache(maxsize=64)
def _slant(magnitude: float, axis: Axis, height: int, width: int) -> _Slant:
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    moved, still, size = (rows, columns, height) if axis == "y" else (columns, rows, width)
    slanted = np.array([-magnitude, magnitude])[:, None, None] * (still + 0.5)
    position = slanted + (moved + 0.5)
    inside = (position >= 0) & (position < size)
    position = position - 0.5
    floor = np.floor(position)
    dim, pitch = (1, width) if axis == "y" else (2, width + 3)
    if (np.diff(floor, axis=dim) == 1).all():
        # The taps of neighbours along the axis overlap: three more per line hold them all.
        reach = np.arange(size + 3).reshape((-1, 1) if axis == "y" else (1, -1))
        taps = floor.take([0], axis=dim) - 1 + reach
        still, apart = still.take([0], axis=dim - 1), width if axis == "y" else 1
    else:  # rounding makes neighbours jump apart: a set of taps for each
        taps = floor[:, None] + np.arange(-1, 3).reshape(-1, 1, 1)
        pitch, apart = width, height * width
    taps = np.clip(taps, 0, size - 1).astype(np.int64)
    where = (taps * width + still if axis == "y" else still * width + taps).reshape(2, -1)
    length = where.shape[1] - 3 * apart
    # Rows are padded to the pitch, with pixels that count as outside.
    inside, fraction = (
        np.pad(values, ((0, 0), (0, 0), (0, pitch - width))).reshape(2, -1)[:, :length]
        for values in (inside, position - floor)
    )
    weights = _polynomial(np.eye(4)[:, None, :, None], fraction[:, None]) * inside[:, None]
    # Four sums that round by 2**-14 each, and products and weights that round by less than 2**-16, are wrong by less
    # than _DOUBT together.
    base = np.where(inside, _BASE + _DOUBT, _BASE + 0.5)
    return _Slant(
        torch.from_numpy(where),
        apart,
        pitch,
        fraction,
        torch.from_numpy(weights).to(torch.float32),
        torch.from_numpy(base).to(torch.float32),
    )
