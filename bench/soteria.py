"""Soteria's mask in steps of training: exact slopes where they decide, a slope for every feature, and estimates alone.

One step is the gradient of the same batch without a defense, timed in the same turn. Our exact mask is that of every slope,
which is checked. Estimated masks are also compared with it feature by feature, for batches and for single images. Two short cuts
would have to find the slopes of a network in order: disjoint ones, several of which one backward pass could have, or ones that
few directions hold. How far they are from that is looked up on one image.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.measure import row_of_ratios
from gradveil.client import share
from gradveil.datasets import load
from gradveil.defenses import Soteria
from gradveil.defenses.feature_effects import effect, features_of, largest_effects
from gradveil.defenses.pruning import Prune
from gradveil.models import untrained_model
from gradveil.parallel import using_one_thread
from gradveil.types import Batch, Dataset, to_unit

DATASET = "fashion-mnist-tenth"
NETWORKS = {"lenet": 5, "resnet20": 5, "convnet-16": 3}  # -> turns
BATCH, STEPS = 16, 5
# With 0 the size of the features alone decides: no slope, no direction.
DIRECTIONS = (0, 4, 8, 16, 32)
MOST = DIRECTIONS[-1]


def run() -> Iterator[dict[str, object]]:
    """One row per network and kind of mask; `value` is how many times fewer steps ours takes than what it is compared with."""
    with using_one_thread():
        for name, turns in NETWORKS.items():
            yield from _rows(name, turns)


def _rows(name: str, turns: int) -> list[dict[str, object]]:
    dataset, defense = load(DATASET), Soteria()
    model = untrained_model(name, dataset)
    (layer,) = defense.layers(model)
    features = model.get_submodule(layer).in_features
    assert isinstance(features, int)
    count = Prune(defense.ratio).count(features)
    found = [_turn(model, _batch(dataset, turn), layer, count) for turn in range(turns + 1)][
        1:
    ]  # the first does not count
    ours, slow = ([one["steps"][kind] for one in found] for kind in ("exact", "slow"))
    settings = f"{features} features, batches of {BATCH} images 28x28, one thread, {turns} turns, against"
    ratios = [theirs / mine for mine, theirs in zip(ours, slow, strict=True)]
    medians = {"ours": statistics.median(ours), "baseline": statistics.median(slow)}
    images = _batch(dataset, turns + 1).images
    apart, held = structure(model, images[:1], layer)
    order = (
        f"{apart:.0%} of pairs of slopes of an image are disjoint, its best {MOST} directions hold {held:.0%} of them"
    )
    row = row_of_ratios(
        f"soteria's mask on {name}", ratios, f"{settings} every slope; {order}", unit="steps", **medians
    )
    rows = [row | {"disjoint": apart, "held": held}]
    exact = [largest_effects(model, image, layer, count) for image in images.split(1)]
    for number in DIRECTIONS:
        steps = [one["steps"][number] for one in found]
        batches = [one["common"][number] for one in found]
        singles = [
            _common(rough_mask(model, image, layer, count, number), mask)
            for image, mask in zip(images.split(1), exact, strict=True)
        ]
        kind = f"{number} directions" if number else "the size of features alone"
        row = row_of_ratios(
            f"soteria's mask on {name}, {kind}",
            [theirs / mine for mine, theirs in zip(steps, ours, strict=True)],
            f"{settings} our exact mask; {_said(batches)} of its features, for single images {_said(singles)} (n={len(singles)})",
            ours=statistics.median(steps),
            baseline=medians["ours"],
            unit="steps",
        )
        rows.append(row | {"common": _quartiles(batches), "common_single": _quartiles(singles)})
    return rows


def rough_mask(model: nn.Module, images: Tensor, layer: str, count: int, directions: int) -> Tensor:
    """The features that an estimate from so many directions takes."""
    if directions:
        return largest_effects(model, images, layer, count, directions)
    with torch.no_grad():
        sizes = features_of(model, images, layer).abs().mean(0)
    return sizes.argsort(descending=True, stable=True)[:count]


def structure(model: nn.Module, image: Tensor, layer: str) -> tuple[float, float]:
    """The share of pairs of slopes that are disjoint, and of the squares of all slopes, at length 1, in `MOST` directions.

    The directions are the best there are, the first singular ones, which nobody has who has not all slopes. Features without
    slope are left out.
    """
    image = image.clone().requires_grad_()
    values = features_of(model, image, layer)[0]
    slopes = torch.stack([torch.autograd.grad(one, image, retain_graph=True)[0].flatten() for one in values])
    slopes = slopes[slopes.norm(dim=1) > 0]
    touched = (slopes != 0).float()
    pairs = len(slopes) * (len(slopes) - 1)
    squares = torch.linalg.svdvals(slopes / slopes.norm(dim=1, keepdim=True)).square()
    return int((touched @ touched.T == 0).sum()) / pairs, float(squares[:MOST].sum() / squares.sum())


def _turn(model: nn.Module, batch: Batch, layer: str, count: int) -> dict[str, Any]:
    """The steps that every kind of mask takes, and the share of the exact mask that the rough ones have."""
    step = _timed(lambda: [share(model, batch) for _ in range(STEPS)])[0] / STEPS
    taken, exact = _timed(lambda: largest_effects(model, batch.images, layer, count))
    slow, effects = _timed(lambda: effect(model, batch.images, layer).mean(0))
    assert _common(effects.argsort(descending=True, stable=True)[:count], exact) == 1
    steps: dict[str | int, float] = {"exact": taken / step, "slow": slow / step}
    common: dict[int, float] = {}
    for number in DIRECTIONS:
        taken, mask = _timed(partial(rough_mask, model, batch.images, layer, count, number))
        steps[number], common[number] = taken / step, _common(mask, exact)
    return {"steps": steps, "common": common}


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def _batch(dataset: Dataset, number: int) -> Batch:
    rows = slice(number * BATCH, (number + 1) * BATCH)
    return Batch(to_unit(dataset.train.images[rows]), dataset.train.labels[rows])


def _common(mask: Tensor, exact: Tensor) -> float:
    return len(set(mask.tolist()) & set(exact.tolist())) / len(exact)


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _said(values: Sequence[float]) -> str:
    low, middle, high = (100 * value for value in _quartiles(values))
    return f"{middle:.1f}% ({low:.1f} to {high:.1f})"
