"""Placeholder until the estimator lands."""

import torch
from torch import Tensor

from gradveil.attacks.evidence import Evidence
from gradveil.types import to_unit


def informed_guess(evidence: Evidence) -> Tensor | None:
    public = evidence.public
    if public is None:
        return None
    if evidence.labels is None:
        return to_unit(public.images).mean(0).expand(evidence.images, *evidence.image_shape)
    return torch.stack([to_unit(public.images[public.labels == label]).mean(0) for label in evidence.labels.tolist()])


def estimate(images: Tensor, evidence: Evidence) -> Tensor:
    return images
