"""Weights that load and still do not fit the images: most often the user's loader normalises, and nobody said so here."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradveil.datasets.statistics import channel_statistics
from gradveil.models.normalizing import InputNormalization, is_normalized
from gradveil.proportions import binomial_p
from gradveil.statistics import CONFIDENCE
from gradveil.types import Dataset, ImageSet, to_unit

MOST_IMAGES = 300
# Large images are looked at by fewer: as many pixels as 300 images of 64x64 have, and 50 images at least.
_MOST_PIXELS = MOST_IMAGES * 64 * 64
_FEWEST_IMAGES = 50
_AT_ONCE = 50
# The chance, at most, that a normalisation is proposed where none makes a difference.
SIGNIFICANCE = 0.01
_HALF = ((0.5,), (0.5,))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def doubt_weights(network: nn.Module, dataset: Dataset) -> str | None:
    """A line for the user where weights classify test images by chance, or clearly better once those are normalised.

    None where there is nothing to say. Normalisations are tried where the network has none: with the statistics of the
    dataset, with 0.5/0.5, and with ImageNet's. One is clearly better where an exact test on the same images says so: of the
    images that are right in one way only, too many are right with it (McNemar, 1947; one-sided, at 1% over all that were tried).
    """
    images = dataset.test
    if images.targets is not None or len(images.classes) < 2:
        return None
    some = _sample(images)
    plain = _right(network, some)
    if plain is None:
        return None
    count, n = int(plain.sum()), len(some)
    better = None if is_normalized(network) else _better(network, some, plain, candidates(dataset.train))
    if better is not None:
        return (
            f"with these weights {count} of {n} test images are classified right, and {better.right} with "
            f"--normalize {better.normalization}: use it if your loader normalises like this"
        )
    commonest = int(some.labels.bincount().max()) / n
    if binomial_p(count, n, commonest) < 1 - CONFIDENCE:
        return None
    remedy = (
        "are they of this model, and of these classes in this order?"
        if is_normalized(network)
        else "if your loader normalises images, say how: --normalize MEANS/DEVIATIONS"
    )
    return f"with these weights {count} of {n} test images are classified right, no better than chance; {remedy}"


def candidates(images: ImageSet) -> list[InputNormalization]:
    """The usual normalisations, in the spelling of `--normalize`."""
    mean, std = (tuple(round(value, 4) for value in values) for values in channel_statistics(images.images))
    found: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    if all(std):  # images of one colour have no deviation
        found.append((mean, std))
    found += [_HALF, _IMAGENET] if images.image_shape[0] == 3 else [_HALF]
    return [InputNormalization(*one) for one in found]


@dataclass(frozen=True)
class _Better:
    normalization: InputNormalization
    right: int


def _better(network: nn.Module, some: ImageSet, plain: Tensor, tried: list[InputNormalization]) -> _Better | None:
    """The normalisation with which most are right, if it is clearly better than none."""
    outcomes = [(one, _right(network, some, one)) for one in tried]
    right = {one: found for one, found in outcomes if found is not None}
    best = max(right, key=lambda one: int(right[one].sum()), default=None)
    if best is None:
        return None
    gained, lost = int((right[best] & ~plain).sum()), int((plain & ~right[best]).sum())
    if gained <= lost or len(tried) * binomial_p(gained, gained + lost, 0.5) >= SIGNIFICANCE:
        return None
    return _Better(best, int(right[best].sum()))


def _sample(images: ImageSet) -> ImageSet:
    """Images from all over the set, few where they are large."""
    _, height, width = images.image_shape
    count = min(len(images), MOST_IMAGES, max(_FEWEST_IMAGES, _MOST_PIXELS // (height * width)))
    return images.take(torch.linspace(0, len(images) - 1, count).long())


def _right(network: nn.Module, some: ImageSet, normalization: InputNormalization | None = None) -> Tensor | None:
    """Which images are classified right, (N,); None where the network gives no score per class."""
    training = network.training
    scores = []
    with torch.no_grad():
        network.eval()
        for part in torch.split(to_unit(some.images), _AT_ONCE):
            scores.append(network(part if normalization is None else normalization(network, (part,))[0]))
    network.train(training)
    if any(
        not isinstance(one, Tensor) or one.ndim != 2 or one.shape[1] != len(some.classes) for one in scores
    ):  # nothing to compare with labels
        return None
    return torch.cat(scores).argmax(1) == some.labels
