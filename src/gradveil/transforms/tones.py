"""Operations on grey levels and colours, bit-equal to Pillow, on uint8 batches `(B, C, H, W)` with 1 or 3 channels.

Every function returns a new tensor. `signs` is `(B,)` of +1 and -1, on the CPU.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gradveil.transforms.scratch import convert, copy_values, scratch

_HALF = torch.tensor(0.5)


def invert(images: Tensor, magnitude: float) -> Tensor:
    """255 - p."""
    return ~images


def posterize(images: Tensor, magnitude: float) -> Tensor:
    """Keep the `magnitude` highest bits."""
    return images & (256 - (1 << (8 - int(magnitude))))


def solarize(images: Tensor, magnitude: float) -> Tensor:
    """Invert the pixels that are not below the threshold `magnitude`."""
    first = -int(-magnitude // 1)  # the lowest inverted level
    if first > 255:
        return images.clone()
    if first <= 0:
        return ~images
    # 0 below the threshold and 255 from it on, without a comparison: those are ten times slower than arithmetic on
    # bytes.
    mask = images.clamp(first - 1, first).sub_(first - 1).neg_()
    return mask.bitwise_xor_(images)


def brightness(images: Tensor, magnitude: float, signs: Tensor) -> Tensor:
    """Blend with black: p (1 + m s)."""
    ratio = whole_ratio(magnitude)
    if ratio is not None:
        numerator, denominator = ratio
        weights = (denominator + signs * numerator).to(images.device, torch.int16).view(-1, 1, 1, 1)
        return to_bytes(floor_divide(convert(images, torch.int16).mul_(weights), denominator))
    # Pillow computes 0 + factor * (p - 0): adding and taking away nothing changes no bit.
    return to_bytes(convert(images, torch.float32).mul_(factors(magnitude, signs, images.device)))


def contrast(images: Tensor, magnitude: float, signs: Tensor) -> Tensor:
    """Blend with the image's mean luminance, rounded to a grey level."""
    pixels = convert(images, torch.float32)
    grey = luminance(pixels).view(len(images), -1)
    # float32 adds whole numbers exactly below 2**24: 65,793 white pixels.
    total = grey.sum(1, dtype=torch.float32 if grey.shape[1] <= 1 << 16 else torch.float64).to(torch.float64)
    mean = total.div_(grey.shape[1]).add_(0.5).floor_().to(torch.float32).view(-1, 1, 1, 1)
    ratio = whole_ratio(magnitude)
    if ratio is not None:
        # p + floor(n s (p - mean) / d) over one denominator
        numerator, denominator = ratio
        steps = (signs * numerator).to(images.device, torch.int16).view(-1, 1, 1, 1)
        weighted = convert(images, torch.int16).mul_(steps + denominator).sub_(steps * mean.to(torch.int16))
        return to_bytes(floor_divide(weighted, denominator))
    return to_bytes(pixels.sub_(mean).mul_(factors(magnitude, signs, images.device)).add_(mean))


def color(images: Tensor, magnitude: float, signs: Tensor) -> Tensor:
    """Blend with the image's own grey version; an identity on one channel."""
    if images.shape[1] == 1:
        return images.clone()
    pixels = convert(images, torch.float32)
    grey = luminance(pixels)
    return to_bytes(pixels.sub_(grey).mul_(factors(magnitude, signs, images.device)).add_(grey))


def grayscale(images: Tensor, magnitude: float) -> Tensor:
    """The luminance in every channel; an identity on one channel."""
    if images.shape[1] == 1:
        return images.clone()
    return to_bytes(luminance(convert(images, torch.float32))).expand_as(images).contiguous()


def autocontrast(images: Tensor, magnitude: float) -> Tensor:
    """Stretch every channel linearly to 0..255."""
    channels = images.view(images.shape[0] * images.shape[1], -1)
    ends = zip(channels.amin(1).tolist(), channels.amax(1).tolist(), strict=True)
    stretches = [_stretch(low, high) for low, high in ends]
    if all(stretch.scale == 1 for stretch in stretches):
        return images.clone()
    scale, shift = (
        torch.tensor(values, dtype=torch.float32, device=images.device).view(-1, 1)
        for values in zip(*((stretch.scale, stretch.shift) for stretch in stretches), strict=True)
    )
    done = to_bytes(convert(channels, torch.float32).mul_(scale).add_(shift))
    for number, stretch in enumerate(stretches):
        if not stretch.floats_agree:
            done[number] = stretch.table.to(images.device).index_select(0, channels[number].to(torch.int32))
    return done.view(images.shape)


@dataclass(frozen=True)
class _Stretch:
    """How autocontrast maps one channel: Pillow's table, and floats that truncate to it."""

    table: Tensor
    scale: float
    shift: float
    floats_agree: bool


@lru_cache(maxsize=1 << 16)
def _stretch(low: int, high: int) -> _Stretch:
    """For a channel between `low` and `high`; kept, because images of a dataset share few such pairs."""
    levels = np.arange(256)
    if low == high or high - low == 255:
        return _Stretch(torch.from_numpy(levels.astype(np.uint8)), 1.0, 0.0, True)
    # Two roundings in double precision, as Pillow's table has them: 254.99999999999997 must stay below 255.
    scale = 255.0 / (high - low)
    table = np.trunc(levels * scale - low * scale).clip(0, 255)
    # Floats truncate alike if they are pushed off the integers to the side that the brightest level is on. Values that are
    # not whole are at least 1/255 away from one. Of the darkest level 0 or a little less makes 0 in either case.
    short = np.float32(scale)
    shift = np.float32(-low * scale + (1 if table[high] == 255 else -1) / 1024)
    floats = np.trunc(levels.astype(np.float32) * short + shift).clip(0, 255)
    agree = bool((floats == table)[low : high + 1].all())  # not where more levels than the brightest become whole
    return _Stretch(torch.from_numpy(table.astype(np.uint8)), float(short), float(shift), agree)


def equalize(images: Tensor, magnitude: float) -> Tensor:
    """Flatten every channel's histogram."""
    channels = images.view(images.shape[0] * images.shape[1], -1)
    planes, pixels = channels.shape
    exact = torch.float32 if pixels < 1 << 23 else torch.float64  # integer divisions below come out right in it
    offsets = torch.arange(0, planes * 256, 256, dtype=torch.int32, device=images.device)
    levels = convert(channels, torch.int32).add_(offsets.view(-1, 1)).view(-1)
    counts = torch.bincount(levels, minlength=planes * 256).view(planes, 256)
    last = counts.gather(1, channels.amax(1, keepdim=True).to(torch.int64))
    step = (pixels - last).div_(255, rounding_mode="floor")
    counts = convert(counts, exact)
    before = counts.cumsum(1).sub_(counts).add_((step // 2).to(exact))
    table = to_bytes(before.div_(step.clamp(min=1).to(exact)).clamp_(max=255))
    unchanged = (step.view(-1) == 0).nonzero().view(-1)
    if len(unchanged):
        table[unchanged] = torch.arange(256, dtype=torch.uint8, device=images.device)
    return table.view(-1).index_select(0, levels).view(images.shape)


def luminance(pixels: Tensor) -> Tensor:
    """Pillow's conversion to grey of float32 pixels `(B, C, H, W)`: `(B, 1, H, W)` float32 holding whole grey levels.

    One channel is its own luminance and comes back as it is.
    """
    if pixels.shape[1] == 1:
        return pixels
    # (19595 R + 38470 G + 7471 B + 32768) >> 16: every sum is an integer below 2**24, hence exact in float32, scaled
    # or not.
    red, green, blue = pixels.unbind(1)
    total = scratch("grey", red.shape, torch.float32, pixels.device)
    torch.add(_HALF, red, alpha=19595 / 65536, out=total)
    total.add_(green, alpha=38470 / 65536).add_(blue, alpha=7471 / 65536)
    return total.floor_().unsqueeze(1)


def factors(magnitude: float, signs: Tensor, device: torch.device) -> Tensor:
    """Pillow's enhancement factors `1 + m s`, `(B, 1, 1, 1)`, rounded to float32 once as Pillow does."""
    values = (1 + magnitude * signs.numpy()).astype(np.float32)
    return torch.from_numpy(values.reshape(-1, 1, 1, 1)).to(device)


@lru_cache(maxsize=64)
def whole_ratio(magnitude: float) -> tuple[int, int] | None:
    """(n, d) if Pillow's blend of any pixel p with any level q is p + floor(n s (p - q) / d), clipped; s is the sign.

    In real numbers it is, for magnitude n / d. Pillow's floats may round across an integer, which spoils it for some
    magnitudes: all p and q are tried. With n <= d <= 64 int16 holds (n + d) p.
    """
    ratio = Fraction(magnitude).limit_denominator(64)
    levels = np.arange(256, dtype=np.float32)
    apart = levels[:, None] - levels
    for sign in (1, -1):
        blended = levels + np.float32(1 + magnitude * sign) * apart
        whole = levels[:, None] + apart * (sign * ratio.numerator) // ratio.denominator
        if not np.array_equal(np.trunc(blended).clip(0, 255), whole.clip(0, 255)):
            return None
    return ratio.numerator, ratio.denominator


def floor_divide(values: Tensor, divisor: int) -> Tensor:
    """int16 `values //= divisor`."""
    if values.device.type == "cpu":  # in numpy it costs hardly more than a sum, in torch fifty times that
        np.floor_divide(values.numpy(), divisor, out=values.numpy())
        return values
    return values.div_(divisor, rounding_mode="floor")


def to_bytes(values: Tensor) -> Tensor:
    """Clip in place and truncate: Pillow's way from a number to a pixel."""
    return copy_values(values.clamp_(0, 255), torch.empty(values.shape, dtype=torch.uint8, device=values.device))
