"""Weights that load and still do not fit the images: most often the user's loader normalises, and the audit was not told."""

import torch
from torch import nn

from gradveil.proportions import binomial_p
from gradveil.statistics import CONFIDENCE
from gradveil.types import ImageSet, to_unit

MOST_IMAGES = 300


def doubt_weights(network: nn.Module, images: ImageSet) -> str | None:
    """A line for the user where the weights classify images no better than chance; None where they do better."""
    if images.labels.ndim != 1 or len(images.classes) < 2:
        return None
    some = images.take(torch.linspace(0, len(images) - 1, min(MOST_IMAGES, len(images))).long())
    training = network.training
    with torch.no_grad():
        scores = network.eval()(to_unit(some.images))
    network.train(training)
    if scores.shape != (len(some), len(images.classes)):  # not a score per class: nothing to compare with labels
        return None
    right = int((scores.argmax(1) == some.labels).sum())
    commonest = int(some.labels.bincount().max()) / len(some)
    if binomial_p(right, len(some), commonest) < 1 - CONFIDENCE:
        return None
    return (
        f"with these weights {right} of {len(some)} test images are classified right, no better than chance; "
        "if your loader normalises images, say how: --normalize MEANS/DEVIATIONS"
    )
