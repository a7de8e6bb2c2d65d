"""How a rebuilt picture may show the image that was shared: as it is, noisy, clipped, faded, or not at all."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEVELS = torch.arange(256, dtype=torch.float64) / 255
# Deviations before clipping; closer where a picture is half noise and it matters most.
_NOISES = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.04, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.2, 2.0, 5.0)
_CLEAR = 1e-4
_BLOTCHES = 0.2  # the deviation of smooth errors
_MEDIAN = 0.6745  # of the size of a Gaussian deviate
_KEPT = (1.0, 0.7, 0.4, 0.2)  # what is left of the contrast


@dataclass(frozen=True)
class View:
    """How a picture may show an image: picture = contrast * image + offset + faded * the picture's mean + errors.

    Errors are white noise of this `variance`, and smooth ones of deviation `blotches`.
    """

    contrast: float
    offset: float
    variance: float
    faded: float = 0.0
    blotches: float = 0.0

    @property
    def clear(self) -> bool:
        """Whether there are hardly any errors."""
        return self.contrast > 0 and self.variance < _CLEAR and not self.blotches

    def expect(self, image: Tensor, brightness: Tensor) -> Tensor:
        """The picture of an image without noise, where the picture's mean is `brightness`."""
        return self.contrast * image + self.offset + self.faded * brightness


def possible_views(levels: Tensor) -> tuple[View, ...]:
    """Everything worth trying for an image whose pixels have grey level i with probability levels[i].

    Noise is clipped to [0, 1], which costs contrast. Some attacks lose more of it: then the image is mixed with one colour,
    and there is at least as much noise as contrast was lost.
    """
    spread = float(levels @ (LEVELS - levels @ LEVELS).square())
    found = []
    for noise in _NOISES:
        seen = _clipped_view(noise, levels)
        for kept in _KEPT:
            if kept == 1 or seen.variance >= (1 - kept) ** 2 * spread:
                found.append(View(kept * seen.contrast, kept * seen.offset, seen.variance, 1 - kept))
    return tuple(found)


def blotchy_views(levels: Tensor) -> tuple[View, ...]:
    """Smooth errors, as attacks leave that look for smooth pictures: with half the contrast, and with nothing of the image."""
    half = [_clipped_view(noise, levels) for noise in (0.1, 0.3)]
    shown = [View(seen.contrast / 2, seen.offset / 2, seen.variance, 0.5, _BLOTCHES) for seen in half]
    return (*shown, *(View(0.0, 0.0, noise**2, 1.0, _BLOTCHES) for noise in (0.05, 0.2)))


def unrelated_view(picture: Tensor) -> View:
    """The picture is noise around one colour and shows nothing."""
    return View(0.0, 0.0, max(float(picture.var(correction=0)), _NOISES[0] ** 2), 1.0)


def grain(pictures: Tensor) -> Tensor:
    """The deviation of white noise in pictures (..., C, H, W), if all of their fine detail were noise.

    The median of differences along both diagonals: edges, and patterns on less than half of the picture, do not count.
    """
    both = pictures[..., 1:, 1:] + pictures[..., :-1, :-1] - pictures[..., 1:, :-1] - pictures[..., :-1, 1:]
    sizes = both.abs().flatten(-3)
    # A picture that is one pixel high or wide has no such detail.
    return sizes.median(-1).values / (2 * _MEDIAN) if sizes.shape[-1] else sizes.sum(-1)


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
