"""A race between policies: all see the same images in the same order, and who cannot win any more drops out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gradveil.statistics import mean_interval
from gradveil.transforms import Policy


@dataclass(frozen=True)
class RaceRound:
    """A round of a race, in which contenders have seen up to `images`: the score expected of each, and who was dropped."""

    images: int
    means: Mapping[str, float]
    dropped: frozenset[str] = frozenset()


def affordable(prices: Sequence[float], left: float, fraction: float) -> int:
    """How many of `prices`, in their order, a round may pay: `fraction` of what is left, but at least one as long as it lasts."""
    total = np.cumsum(prices)
    count = int(np.searchsorted(total, fraction * left, side="right"))
    return max(count, int(total[0] <= left)) if len(total) else 0


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
