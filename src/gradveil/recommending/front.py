"""Which candidates no other one beats in both figures."""

from collections.abc import Mapping
from typing import TypeVar

Name = TypeVar("Name")
Interval = tuple[float, float]


def pareto_front(points: Mapping[Name, tuple[float, float]]) -> list[Name]:
    """The names whose point no other one is below in one figure without being above in the other; less is better in both.

    In the order of the first figure. Equal points are all in it.
    """
    order = sorted(points, key=lambda name: points[name])
    front: list[Name] = []
    for name in order:
        second = points[name][1]
        # Sorted: whoever is on the front has no larger first figure. The last one has the smallest second figure.
        if not front or second < points[front[-1]][1] or points[name] == points[front[-1]]:
            front.append(name)
    return front


def surely_beaten(mine: tuple[Interval, Interval], other: tuple[Interval, Interval]) -> bool:
    """Whether all of the other's intervals lie below mine: no more measuring would bring it onto the front."""
    return all(theirs[1] < own[0] for own, theirs in zip(mine, other, strict=True))
