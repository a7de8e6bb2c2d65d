"""Where an attack begins: its first guess."""

from collections.abc import Callable

import torch
from torch import Tensor

from gradveil.attacks.evidence import Evidence
from gradveil.errors import GradveilError
from gradveil.models.normalizing import normalization
from gradveil.types import to_unit

# (what is known, the labels as far as known, chance) -> guess (images, C, H, W) in normalised units.
Start = Callable[[Evidence, Tensor | None, torch.Generator], Tensor]


def noise(evidence: Evidence, labels: Tensor | None, chance: torch.Generator) -> Tensor:
    """Normal noise."""
    return torch.randn((evidence.images, *evidence.image_shape), generator=chance)


def zeros(evidence: Evidence, labels: Tensor | None, chance: torch.Generator) -> Tensor:
    """The average colour with a trace of noise: at exactly zero a network without biases has no slope."""
    return 0.01 * noise(evidence, labels, chance)


def pattern(evidence: Evidence, labels: Tensor | None, chance: torch.Generator) -> Tensor:
    """A random patch of a quarter of the sides, repeated (CPL, Wei et al., 2020)."""
    channels, height, width = evidence.image_shape
    sides = -(-height // 4), -(-width // 4)
    patch = torch.rand((evidence.images, channels, *sides), generator=chance)
    return _normalize(evidence, patch.repeat(1, 1, 4, 4)[..., :height, :width])


def class_mean(evidence: Evidence, labels: Tensor | None, chance: torch.Generator) -> Tensor:
    """The mean of the public images of the class."""
    return _normalize(evidence, torch.stack([images.mean(0) for images in _public(evidence, labels)]))


def public_image(evidence: Evidence, labels: Tensor | None, chance: torch.Generator) -> Tensor:
    """A public image of the class, drawn at random."""
    drawn = [images[int(torch.randint(len(images), (1,), generator=chance))] for images in _public(evidence, labels)]
    return _normalize(evidence, torch.stack(drawn))


def informed(evidence: Evidence, labels: Tensor | None, chance: torch.Generator) -> Tensor:
    """The class mean where public images show it, else the average colour; a trace of noise tells images of one class apart."""
    trace = zeros(evidence, labels, chance)
    try:
        mean = class_mean(evidence, labels, chance)
    except GradveilError:
        return trace
    return mean + trace.to(mean.device)


STARTS: dict[str, Start] = {
    "noise": noise,
    "zeros": zeros,
    "pattern": pattern,
    "class-mean": class_mean,
    "public-image": public_image,
    "informed": informed,
}


def _public(evidence: Evidence, labels: Tensor | None) -> list[Tensor]:
    """Per image the public images of its class."""
    public = evidence.public
    if public is None or public.image_shape != evidence.image_shape:
        raise GradveilError(f"this start needs public images {evidence.image_shape}: use noise, zeros or pattern")
    if labels is None:
        raise GradveilError("this start needs the labels: use noise, zeros or pattern")
    found = [public.like(label) for label in labels]
    for label, images in zip(labels.tolist(), found, strict=True):
        if len(images) == 0:
            raise GradveilError(f"no public image of class {label}: use noise, zeros or pattern")
    return [to_unit(images) for images in found]


def _normalize(evidence: Evidence, pixels: Tensor) -> Tensor:
    units = normalization(evidence.model, evidence.image_shape[0])
    made: Tensor = units(pixels.to(units.mean.device))
    return made
