"""A race between policies: all see the same images in the same order, and who cannot win any more drops out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from gradveil.statistics import mean_interval
from gradveil.transforms import Policy

# A spread seen on a few images is mixed with that of all contenders, which counts as so many images.
PRIOR_IMAGES = 10


@dataclass(frozen=True)
class RaceRound:
    """A round of a race: the mean score of each contender over all `images` seen so far, and who was dropped after it."""

    images: int
    means: Mapping[str, float]
    dropped: frozenset[str] = frozenset()


def survivors(values: Mapping[str, Sequence[float]], places: int, confidence: float) -> list[str]:
    """Who may still belong to the `places` lowest, best first; every contender has a value for the same images.

    A contender drops out when a paired test says with `confidence` that it is worse than the last of the `places` best.
    """
    names = sorted(values, key=lambda name: (float(np.mean(values[name])), name))
    if len(names) <= places:
        return names
    table = np.array([values[name] for name in names])
    images = table.shape[1]
    if images < 2:  # one image has no spread to judge by
        return names
    gaps = table - table[places - 1]
    means, spreads = gaps.mean(1), gaps.var(1, ddof=1)
    others = np.arange(len(names)) != places - 1
    freedom = images - 1 + PRIOR_IMAGES
    mixed = ((images - 1) * spreads + PRIOR_IMAGES * spreads[others].mean()) / freedom
    limit = stats.t.ppf(confidence, freedom) * np.sqrt(mixed / images)
    return [name for rank, name in enumerate(names) if rank < places or means[rank] <= limit[rank]]


def tied_with(values: Mapping[str, Sequence[float]], confidence: float) -> dict[str, tuple[str, ...]]:
    """For each the others it is statistically tied with, by a two-sided paired test."""
    return {
        name: tuple(o for o in values if o != name and not differ(values[name], values[o], confidence))
        for name in values
    }


def differ(a: Sequence[float], b: Sequence[float], confidence: float) -> bool:
    """Whether a two-sided paired test says that the means of `a` and `b`, on the same images, differ."""
    between = mean_interval(np.subtract(a, b).tolist(), confidence)
    return between is not None and not between[0] <= 0 <= between[1]


def pareto_front(points: Mapping[Policy, tuple[float, float]]) -> tuple[Policy, ...]:
    """The Pareto front of (privacy, lower is better; accuracy, higher is better), most private first."""
    chosen: list[Policy] = []
    best = -math.inf
    for name in sorted(points, key=lambda name: (points[name][0], -points[name][1], str(name))):
        if points[name][1] > best:
            chosen.append(name)
            best = points[name][1]
    return tuple(chosen)
