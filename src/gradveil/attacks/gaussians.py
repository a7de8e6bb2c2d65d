"""What images look like before anything is seen of them: Gaussians, of public images or of smooth pictures.

Both answer one question. A picture shows an image x as `contrast * x + offset + white noise`: how likely is the picture, and what
is x on average, given the picture?
"""

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from scipy.fft import dctn, idctn
from torch import Tensor

from gradveil.attacks.views import LEVELS, View

_FACTORS = 64  # more do not help: what they hold is in `rest`
_SHRINKAGE = 0.05  # a sample's main axes look longer than they are
_FLOOR = 0.01  # of the mean variance, for pixels that never vary in public images
_LEAST = 1e-6


@dataclass(frozen=True)
class Posterior:
    """What a picture says, if this is how it shows the image: its log likelihood, and the image's mean (C, H, W).

    `pull` (pixels,) is that mean's distance from the prior mean before the prior's covariance is applied to it: whatever goes
    together with the image by a covariance K is moved by K @ pull.
    """

    fit: float
    image: Tensor
    pull: Tensor


class Gaussian(Protocol):
    """A prior over images; `levels` (256,) says how often its images have each grey level."""

    @property
    def levels(self) -> Tensor: ...

    def posterior(self, picture: Tensor, view: View) -> Posterior:
        """What the picture, float64 (C, H, W), says of the image."""
        ...


@dataclass(frozen=True)
class PublicGaussian:
    """Mean and covariance of public images: `factors` (pixels, k) of the main axes, and for every pixel the `rest`.

    The rest is kept pixel by pixel, because noise shows where public images never vary.
    """

    mean: Tensor
    factors: Tensor
    rest: Tensor
    levels: Tensor
    _inverses: "dict[tuple[float, float], _Inverse]" = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, public: Tensor) -> "PublicGaussian":
        """From float images (N, C, H, W) in [0, 1], at least one."""
        images = public.detach().cpu().double()
        mean = images.mean(0)
        around = (images - mean).flatten(1)
        _, basis = torch.linalg.eigh(around @ around.T)
        factors = around.T @ basis[:, -_FACTORS:] * math.sqrt((1 - _SHRINKAGE) / len(around))
        variance = around.square().mean(0)
        rest = (variance - factors.square().sum(1)).clamp_min(0) + _FLOOR * variance.mean() + _LEAST
        levels = torch.bincount((images * 255).round().long().flatten(), minlength=256).double() / images.numel()
        return cls(mean, factors, rest, levels)

    def posterior(self, picture: Tensor, view: View) -> Posterior:
        off = (picture - view.contrast * self.mean - view.offset).flatten()
        inverse = self._inverse(view)
        error = inverse(off)
        pull = view.contrast * error
        image = self.mean + self._times_covariance(pull).view(picture.shape)
        return Posterior(-float(off @ error + inverse.volume) / 2, image, pull)

    def shrink(self, images: Tensor, view: View) -> Tensor:
        """What the posterior mean of images (N, C, H, W) is on average when they are shown like this."""
        pull = view.contrast**2 * self._inverse(view)((images - self.mean).flatten(1).T)
        return self.mean + self._times_covariance(pull).T.reshape(images.shape)

    def _times_covariance(self, vectors: Tensor) -> Tensor:
        return self.factors @ (self.factors.T @ vectors) + self.rest.view(-1, *[1] * (vectors.ndim - 1)) * vectors

    def _inverse(self, view: View) -> "_Inverse":
        if view.contrast == 0:  # its variance is the picture's own: not worth keeping
            return _Inverse.of(self.factors[:, :0], torch.full_like(self.rest, view.variance))
        key = view.contrast, view.variance
        if key not in self._inverses:
            self._inverses[key] = _Inverse.of(
                view.contrast * self.factors, view.contrast**2 * self.rest + view.variance
            )
        return self._inverses[key]


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

    Around mid grey, any brightness; `deviation` is that of the pixels of a picture around their mean.
    """

    deviation: float

    @property
    def levels(self) -> Tensor:
        return torch.full_like(LEVELS, 1 / len(LEVELS))

    def posterior(self, picture: Tensor, view: View) -> Posterior:
        power = self._power(*picture.shape[1:])
        waves = torch.from_numpy(dctn((picture - view.contrast / 2 - view.offset).numpy(), axes=(1, 2), norm="ortho"))
        total = view.contrast**2 * power + view.variance
        fit = -float((waves.square() / total + total.log()).sum()) / 2
        pull = view.contrast * waves / total
        image = 0.5 + torch.from_numpy(idctn((power * pull).numpy(), axes=(1, 2), norm="ortho"))
        return Posterior(fit, image, pull)

    def _power(self, height: int, width: int) -> Tensor:
        """Variance (H, W) of every cosine."""
        frequency = np.add.outer((np.arange(height) / height) ** 2, (np.arange(width) / width) ** 2)
        frequency[0, 0] = np.inf
        power = torch.from_numpy(1 / frequency)
        power *= self.deviation**2 * height * width / power.sum().clamp_min(_LEAST)
        power[0, 0] = height * width / 12  # as of numbers between 0 and 1
        return power
