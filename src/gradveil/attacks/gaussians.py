"""What images look like before anything is seen of them: Gaussians, of public images or of smooth pictures.

Both answer one question. A picture shows an image x as `contrast * x + offset + white noise`: how likely is the picture, and what
is x on average, given the picture?
"""

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol

import numpy as np
import torch
from scipy.fft import dctn, idctn
from torch import Tensor

from gradveil.attacks.views import LEVELS, View, blotchy_views, grain, possible_views

_FACTORS = 64  # more do not help: what they hold is in `rest`
_PER_FACTOR = 2  # images
_SHRINKAGE = 0.05  # a sample's main axes look longer than they are
_FLOOR = 0.01  # of the mean variance, for pixels that never vary in public images
_LEAST = 1e-6
_STEP = 1 / 512  # half of what eight bits tell apart
_GRAIN_ERROR = 1.5  # clipped noise has less grain than its variance says


class Gaussian(Protocol):
    """A prior over images, with the `views` of them that are worth trying."""

    @property
    def views(self) -> tuple[View, ...]: ...

    def allows(self, picture: Tensor, view: View) -> bool:
        """Whether a picture has as much noise as the view says, whatever image it shows."""
        ...

    def explain(self, picture: Tensor, view: View) -> tuple[float, Tensor]:
        """How likely a picture, float64 (C, H, W), is, as a logarithm; and its `pull` on the image.

        The pull is how far the image's posterior mean is from the prior mean before the covariance is applied to it: whatever
        goes together with the image by a covariance K is moved by K @ pull.
        """
        ...

    def move(self, pull: Tensor) -> Tensor:
        """The image's posterior mean (C, H, W)."""
        ...


@dataclass(frozen=True)
class PublicGaussian:
    """Mean and covariance of public images: `factors` (pixels, k) of the main axes, and for every pixel the `rest`.

    The rest is kept pixel by pixel, because noise shows where public images never vary.
    """

    mean: Tensor
    factors: Tensor
    rest: Tensor
    views: tuple[View, ...]
    grains: tuple[float, float]  # the least and the most of any public image
    _inverses: "dict[tuple[float, float, float], _Inverse]" = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, public: Tensor) -> "PublicGaussian":
        """From float images (N, C, H, W) in [0, 1], at least one."""
        images = public.detach().cpu().double()
        mean = images.mean(0)
        around = (images - mean).flatten(1)
        _, basis = torch.linalg.eigh(around @ around.T)
        # Of few images all would lie on the axes, and any other image far from them: fewer axes leave a rest to learn from.
        count, kept = len(around), min(_FACTORS, max(1, len(around) // _PER_FACTOR))
        factors = around.T @ basis[:, -kept:] * math.sqrt((1 - _SHRINKAGE) / count)
        variance = around.square().mean(0)
        unexplained = (variance - factors.square().sum(1)).clamp_min(0) * count / max(1, count - 1 - kept)
        rest = unexplained + _FLOOR * variance.mean() + _LEAST
        levels = torch.bincount((images * 255).round().long().flatten(), minlength=256).double() / images.numel()
        grains = grain(images)
        limits = float(grains.min()), float(grains.max())
        return cls(mean, factors, rest, possible_views(levels) + blotchy_views(levels), limits)

    def with_detail(self, times: float) -> "PublicGaussian":
        """Of images with so many times the usual detail, which are taken for such only if they are shown clearly."""
        clear = tuple(view for view in self.views if view.clear)
        return replace(self, rest=times * self.rest, views=clear, _inverses={})

    def allows(self, picture: Tensor, view: View) -> bool:
        # Real images are no Gaussians: by likelihood alone detail passes for noise and noise for detail.
        seen = max(float(grain(picture)), _STEP)
        least, most = (math.hypot(view.contrast * one, math.sqrt(view.variance)) for one in self.grains)
        return least / _GRAIN_ERROR <= seen <= _GRAIN_ERROR * most

    def explain(self, picture: Tensor, view: View) -> tuple[float, Tensor]:
        off = (picture - view.expect(self.mean, picture.mean())).flatten()
        inverse = self._inverse(view)
        error = inverse(off)
        return -float(off @ error + inverse.volume) / 2, view.contrast * error

    def move(self, pull: Tensor) -> Tensor:
        return self.mean + self._times_covariance(pull).view(self.mean.shape)

    def shrink(self, images: Tensor, view: View) -> Tensor:
        """What the posterior mean of images (N, C, H, W) is on average when they are shown like this."""
        pull = view.contrast**2 * self._inverse(view)((images - self.mean).flatten(1).T)
        return self.mean + self._times_covariance(pull).T.reshape(images.shape)

    def _times_covariance(self, vectors: Tensor) -> Tensor:
        return self.factors @ (self.factors.T @ vectors) + self.rest.view(-1, *[1] * (vectors.ndim - 1)) * vectors

    def _inverse(self, view: View) -> "_Inverse":
        """The inverse of the covariance of pictures."""
        key = view.contrast, view.variance, view.blotches
        if key in self._inverses:
            return self._inverses[key]
        parts = [view.contrast * self.factors] if view.contrast else []
        parts += [view.blotches * smooth_factors(*self.mean.shape)] if view.blotches else []
        factors = torch.cat(parts, 1) if parts else self.factors[:, :0]
        found = _Inverse.of(factors, view.contrast**2 * self.rest + view.variance)
        if parts:  # else its variance is one picture's own, not worth keeping
            self._inverses[key] = found
        return found


@dataclass(frozen=True)
class _Inverse:
    """The inverse of F F' + diag(d), by Woodbury's identity, and the logarithm of its determinant, `volume`."""

    weighted: Tensor  # F / d
    inner: Tensor  # Cholesky factor of 1 + F' F / d
    diagonal: Tensor
    volume: Tensor

    @classmethod
    def of(cls, factors: Tensor, diagonal: Tensor) -> "_Inverse":
        weighted = factors / diagonal[:, None]
        inner = torch.linalg.cholesky(torch.eye(factors.shape[1], dtype=factors.dtype) + factors.T @ weighted)
        return cls(weighted, inner, diagonal, diagonal.log().sum() + 2 * inner.diagonal().log().sum())

    def __call__(self, vectors: Tensor) -> Tensor:
        """Times vectors, (pixels,) or (pixels, n)."""
        columns = vectors.view(len(vectors), -1)
        solved = torch.cholesky_solve(self.weighted.T @ columns, self.inner)
        return (columns / self.diagonal[:, None] - self.weighted @ solved).view(vectors.shape)


@dataclass(frozen=True)
class SmoothGaussian:
    """Pictures as nature has them, for want of public ones: power falls with the square of the frequency.

    Around mid grey, of any brightness; `deviation` is that of a picture's pixels around their mean, `noisiest` the most noise
    that such a picture is looked for under.
    """

    deviation: float
    noisiest: float = math.inf

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(view for view in _VIEWS_OF_ALL_LEVELS if view.variance <= self.noisiest**2)

    def allows(self, picture: Tensor, view: View) -> bool:
        return True  # nobody knows how much detail the images have

    def explain(self, picture: Tensor, view: View) -> tuple[float, Tensor]:
        off = picture - view.expect(torch.tensor(0.5), picture.mean())
        waves = torch.from_numpy(dctn(off.numpy(), axes=(1, 2), norm="ortho"))
        total = view.contrast**2 * _power(self.deviation, *picture.shape[1:]) + view.variance
        fit = -float((waves.square() / total + total.log()).sum()) / 2
        return fit, view.contrast * waves / total

    def move(self, pull: Tensor) -> Tensor:
        moved = _power(self.deviation, *pull.shape[1:]) * pull
        return 0.5 + torch.from_numpy(idctn(moved.numpy(), axes=(1, 2), norm="ortho"))


_VIEWS_OF_ALL_LEVELS = possible_views(torch.full_like(LEVELS, 1 / len(LEVELS)))


@cache
def _power(deviation: float, height: int, width: int) -> Tensor:
    """Variance (H, W) of every cosine."""
    frequency = np.add.outer((np.arange(height) / height) ** 2, (np.arange(width) / width) ** 2)
    frequency[0, 0] = np.inf
    power = torch.from_numpy(1 / frequency)
    power *= deviation**2 * height * width / power.sum().clamp_min(_LEAST)
    power[0, 0] = height * width / 12  # as of numbers between 0 and 1
    return power


@cache
def smooth_factors(channels: int, height: int, width: int) -> Tensor:
    """Cosines (pixels, k) of low frequency, and brightness, channel by channel; the variance of their sum is 1 on average."""
    columns = []
    for down, right in np.ndindex(min(height, 5), min(width, 5)):
        if down**2 + right**2 <= 20:
            wave = np.zeros((height, width))
            wave[down, right] = 0.5 if down == right == 0 else 1 / np.hypot(down, right)
            columns.append(idctn(wave, norm="ortho").flatten())
    waves = torch.from_numpy(np.stack(columns, 1))
    waves *= math.sqrt(height * width) / waves.norm()
    return torch.kron(torch.eye(channels, dtype=waves.dtype), waves)
