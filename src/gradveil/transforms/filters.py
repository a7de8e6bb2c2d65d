"""Operations that look at neighbouring pixels, bit-equal to Pillow, on uint8 batches `(B, C, H, W)`."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gradveil.transforms.scratch import convert, scratch
from gradveil.transforms.tones import factors, floor_divide, to_bytes, whole_ratio

_SIX = torch.tensor(6, dtype=torch.int16)  # half of 13: what turns rounding down into rounding


def sharpness(images: Tensor, magnitude: float, signs: Tensor) -> Tensor:
    """Blend with the smoothed image: above 1 sharpens, below 1 softens."""
    height, width = images.shape[2:]
    if height < 3 or width < 3:  # all border, which Pillow does not smooth
        return images.clone()
    pixels = convert(images.view(-1), torch.int16).view(len(images), -1)
    change = _smoothing(pixels, height, width)
    ratio = whole_ratio(magnitude)
    if ratio is None:
        smooth = convert(pixels.add_(change), torch.float32, "smooth")
        factor = factors(magnitude, signs, images.device).view(-1, 1)
        return to_bytes(smooth.sub_(convert(change, torch.float32).mul_(factor))).view(images.shape)
    numerator, denominator = ratio
    change.mul_((signs * -numerator).to(images.device, torch.int16).view(-1, 1))
    return to_bytes(floor_divide(change, denominator).add_(pixels)).view(images.shape)


def _smoothing(pixels: Tensor, height: int, width: int) -> Tensor:
    """What Pillow's SMOOTH filter adds to every pixel; int16, as `pixels` `(B, C * H * W)`.

    Its weights are 1 around 5, divided by 13 and rounded, and the border stays: with the sum s of the nine pixels
    around p that is (s - 9 p) / 13, rounded, which is never half-way between two integers.
    """
    flat = pixels.view(-1)
    # Sums over the flat array: contiguous passes, wrong only at the border, which is masked.
    across = scratch("across", (len(flat) - 2,), torch.int16, flat.device)
    torch.add(flat[:-2], flat[1:-1], out=across).add_(flat[2:])
    around = scratch("around", flat.shape, torch.int16, flat.device)
    inner = around[width + 1 : -(width + 1)]
    torch.add(across[: -2 * width], across[width:-width], out=inner).add_(across[2 * width :])
    planes = around.add_(flat, alpha=-9).view(-1, height * width)
    torch.addcmul(_SIX.to(flat.device), planes, _interior(height, width).to(flat.device), out=planes)
    return floor_divide(around, 13).view(pixels.shape)


@lru_cache(maxsize=64)
def _interior(height: int, width: int) -> Tensor:
    """1 inside, 0 at the border, `(H * W,)`."""
    mask = torch.zeros((height, width), dtype=torch.int16)
    mask[1:-1, 1:-1] = 1
    return mask.view(-1)


def blur(images: Tensor, magnitude: float) -> Tensor:
    """Box blur of radius `magnitude`, edges extended."""
    return _box(_box(images, 3, magnitude), 2, magnitude)


def _box(images: Tensor, dim: int, radius: float) -> Tensor:
    # Pillow's fixed point: 24 bits, whole pixels weigh `whole`, the two partly covered ones `edge`.
    reach = int(radius)
    whole = int(np.float32(1 << 24) / np.float32(radius * 2 + 1))
    edge = ((1 << 24) - (reach * 2 + 1) * whole) // 2
    size = images.shape[dim]
    positions = torch.arange(-reach - 1, size + reach + 1, device=images.device).clamp_(0, size - 1)
    padded = images.index_select(dim, positions).to(torch.int64)
    inner = padded.narrow(dim, 1, size).clone()
    for offset in range(2, 2 * reach + 2):
        inner += padded.narrow(dim, offset, size)
    outer = padded.narrow(dim, 0, size) + padded.narrow(dim, 2 * reach + 2, size)
    return ((inner * whole + outer * edge + (1 << 23)) >> 24).to(torch.uint8)
