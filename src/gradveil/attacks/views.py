"""How a rebuilt picture may show the image that was shared: as it is, noisy, clipped, faded, or not at all."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEVELS = torch.arange(256, dtype=torch.float64) / 255
_NOISES = tuple(10 ** (step / 4 - 4) for step in range(21))  # deviations before clipping, 0.0001 to 10
_FADED = (1.0, 0.7, 0.4, 0.2)  # what is left of the contrast


@dataclass(frozen=True)
class View:
    """How a picture may show an image: picture = contrast * image + offset + white noise of this variance."""

    contrast: float
    offset: float
    variance: float


def possible_views(picture: Tensor, levels: Tensor) -> list[View]:
    """Everything worth trying for a picture (C, H, W) of an image whose pixels have grey level i with probability levels[i].

    Noise is clipped to [0, 1], which costs contrast. Some attacks lose more of it: then the image is mixed with one colour,
    the picture's mean, and there is at least as much noise as contrast was lost. Last, a picture that shows nothing.
    """
    brightness, spread = float(picture.mean()), float(picture.var(correction=0))
    middle = float(levels @ LEVELS)
    range_ = float(levels @ (LEVELS - middle).square())
    found = []
    for noise in _NOISES:
        seen = _clipped_view(noise, levels)
        for kept in _FADED:
            if kept == 1 or seen.variance >= (1 - kept) ** 2 * range_:
                offset = kept * seen.offset + (1 - kept) * brightness
                found.append(View(kept * seen.contrast, offset, seen.variance))
    return [*found, View(0.0, brightness, max(spread, _NOISES[0] ** 2))]


def _clipped_view(noise: float, levels: Tensor) -> View:
    """The straight line, and the variance around it, that is nearest to clip(x + noise) over pixels x with these levels."""
    low, high = -LEVELS / noise, (1 - LEVELS) / noise
    inside, above = torch.special.ndtr(high) - torch.special.ndtr(low), torch.special.ndtr(-high)
    density = [torch.exp(-side.square() / 2) * noise / math.sqrt(2 * math.pi) for side in (low, high)]
    mean = LEVELS * inside + density[0] - density[1] + above
    square = (LEVELS.square() + noise**2) * inside + density[0] * LEVELS - density[1] * (LEVELS + 1) + above
    middle, seen = levels @ LEVELS, levels @ mean
    spread = (levels @ (LEVELS - middle).square()).clamp_min(1e-12)
    contrast = levels @ ((LEVELS - middle) * (mean - seen)) / spread
    line = contrast * (LEVELS - middle) + seen
    variance = levels @ (square - 2 * mean * line + line.square())
    return View(float(contrast), float(seen - contrast * middle), max(float(variance), noise**2 * 1e-3, 1e-8))
