"""What an attacker takes the private images for: before it sees the gradient, and after.

An attack that half fails leaves noise with the image in it. An attacker who knows what such images look like reads more from it
than the picture shows, and where it shows nothing still has the guess that needs no gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.attacks.evidence import Evidence
from gradveil.attacks.gaussians import Gaussian, PublicGaussian, SmoothGaussian
from gradveil.attacks.views import View, unrelated_view
from gradveil.errors import GradveilError
from gradveil.types import ImageSet, to_unit

MOST_PUBLIC = 256
_DEVIATIONS = (0.03, 0.1, 0.2, 0.3, 0.4)  # nearly flat to black and white
_SMOOTH = tuple(SmoothGaussian(deviation) for deviation in _DEVIATIONS)
# Fewer public images than this do not show how different images are: one that is shown well may be any smooth picture. Where it
# is not, noise would pass for a grey one.
_FEW = 40
_SHOWN = [SmoothGaussian(deviation, noisiest=0.2) for deviation in _DEVIATIONS]
_TEMPERATURE = 5.0  # errors of pixels go together: so many say as much as one
_LIKELY = 1e-3
_DETAIL = (3.0, 10.0, 30.0, 100.0)
_CLEAR_FIRST = 0.2  # log odds per value of a picture
_MOST_CLASSES = 20


def public_by_image(evidence: Evidence) -> list[Tensor | None]:
    """Per image the public uint8 images of its class; of all classes where labels are unknown or a class has fewer than two.

    None where there are no two of the same shape.
    """
    public = evidence.public
    if public is None or public.image_shape != evidence.image_shape or len(public) < 2:
        return [None] * evidence.images
    if evidence.labels is None:
        return [public.images] * evidence.images
    names = list(map(str, evidence.labels.tolist()))
    chosen = {name: public.like(label) for name, label in zip(names, evidence.labels, strict=True)}
    return [chosen[name] if len(chosen[name]) > 1 else public.images for name in names]


def sample(public: Tensor) -> Tensor:
    """At most `MOST_PUBLIC` of the public images (N, C, H, W), evenly spread, as floats in [0, 1]."""
    chosen = torch.linspace(0, len(public) - 1, min(len(public), MOST_PUBLIC)).round().long()
    return to_unit(public[chosen.to(public.device)])


def informed_guess(evidence: Evidence) -> Tensor | None:
    """The guess (B, C, H, W) without the gradient: the mean of the public images of the class, or of all; None without any."""
    found = [seen for seen in public_by_image(evidence) if seen is not None]
    means = {id(seen): to_unit(seen).mean(0) for seen in found}
    return torch.stack([means[id(seen)] for seen in found]).to(evidence.device) if found else None


def estimate(images: Tensor, evidence: Evidence) -> Tensor:
    """The private images as far as rebuilt ones (B, C, H, W) in [0, 1] and public images tell: the mean of what they may be.

    Of least squared error where the errors are white noise, clipped. Exact pictures stay as they are, noise becomes
    `informed_guess`; without public images it becomes smooth.
    """
    if len(images) != evidence.images:
        raise GradveilError(f"expected {evidence.images} rebuilt images, got {len(images)}")
    priors: dict[int, Sequence[Gaussian]] = {id(None): _SMOOTH}
    everything = evidence.public if evidence.labels is None else None
    done = images.clone()
    # One by one, so that an image's result does not depend on those beside it, not even in the last digit.
    for row, seen in enumerate(public_by_image(evidence)):
        if id(seen) not in priors and seen is not None:
            priors[id(seen)] = [
                *public_priors(seen),
                *_priors_by_class(everything),
                *(_SHOWN if len(seen) < _FEW else []),
            ]
        done[row] = mean_image(read(images[row], priors[id(seen)])).clamp(0, 1)
    return done


def public_priors(public: Tensor) -> list[PublicGaussian]:
    """What public uint8 images (N, C, H, W) say of images: as usual they are, and with more detail.

    Without the latter, patterned shirts are taken for noisy ones.
    """
    usual = PublicGaussian.of(sample(public))
    return [usual, *(usual.with_detail(times) for times in _DETAIL)]


def _priors_by_class(public: ImageSet | None) -> list[PublicGaussian]:
    """Where the class is not known, each of them may be it; of many classes none is tried."""
    if public is None or len(public.classes) > _MOST_CLASSES:
        return []
    classes = [public.images[public.labels == label] for label in range(len(public.classes))]
    return [prior for images in classes if len(images) > 1 for prior in public_priors(images)]


@dataclass(frozen=True)
class Reading:
    """One way to read a picture: how probable it is, how well it explains the picture, and what the image is then.

    `pull` is as in `Gaussian.explain`.
    """

    odds: float
    fit: float
    view: View
    image: Tensor
    pull: Tensor


def read(picture: Tensor, priors: Sequence[Gaussian] = _SMOOTH) -> list[Reading]:
    """The likely readings of a picture (C, H, W), the likeliest first; their odds sum to 1.

    A picture that shows nothing leaves the mean of the first prior.
    """
    exact = picture.detach().cpu().double()
    allowed = [(prior, view) for prior in priors for view in prior.views if prior.allows(exact, view)]
    views = [(priors[0], unrelated_view(exact)), *allowed]
    explained = [prior.explain(exact, view) for prior, view in views]
    fits = torch.tensor([fit for fit, _ in explained], dtype=torch.float64) / _TEMPERATURE
    # Detail looks like noise. To take an exact picture for a noisy one costs most, so that it needs more than a better fit.
    fits += _CLEAR_FIRST * exact.numel() / _TEMPERATURE * torch.tensor([view.clear for _, view in views])
    chances = _weigh(fits, torch.tensor([view.blotches > 0 for _, view in views]))
    likely = [number for number in chances.argsort(descending=True).tolist() if chances[number] > _LIKELY]
    total = float(chances[likely].sum())
    found = []
    for number in likely:
        (prior, view), (fit, pull) = views[number], explained[number]
        found.append(Reading(float(chances[number]) / total, fit, view, prior.move(pull), pull))
    return found


def _weigh(fits: Tensor, blotchy: Tensor) -> Tensor:
    """Odds from log likelihoods. Smooth errors look like smooth images, so that no fit makes them more than an even bet."""
    if not blotchy.any():
        return fits.softmax(0)
    share = fits.softmax(0)[blotchy].sum().clamp_max(0.5)
    odds = torch.zeros_like(fits)
    odds[blotchy], odds[~blotchy] = share * fits[blotchy].softmax(0), (1 - share) * fits[~blotchy].softmax(0)
    return odds


def mean_image(readings: Sequence[Reading]) -> Tensor:
    """The mean of what the readings say, weighted by their odds, float64 (C, H, W)."""
    return torch.stack([one.odds * one.image for one in readings]).sum(0)
