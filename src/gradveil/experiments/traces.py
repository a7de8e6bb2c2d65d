"""Gradient similarity during an attack, averaged over images."""

from collections.abc import Sequence

import numpy as np

from gradveil.experiments.records import Curve
from gradveil.leakage.records import Record

# The place on the way, from the first to the last iteration; attacks may end early.
POINTS = tuple(round(0.05 * step, 2) for step in range(21))
OVERALL = "all"


def trace_curves(which: str, row: str, records: Sequence[Record]) -> list[Curve]:
    """The curves that were asked for: of `all` parameters together, or of `layers`, two shallow and two deep ones."""
    traced = [one.similarity for one in records if len(one.similarity.get("iterations", ())) > 1]
    if not which or not traced:
        return []
    layers = sorted((name for name in traced[0] if "(" in name), key=lambda name: (name.startswith("deep"), name))
    names = [OVERALL] if which == OVERALL else layers
    return [_curve(name, row, [(one["iterations"], one[name]) for one in traced if name in one]) for name in names]


def _curve(name: str, row: str, lines: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Curve:
    rows = np.array([np.interp(POINTS, np.array(at) / at[-1], values) for at, values in lines])
    sd = rows.std(0, ddof=1) if len(rows) > 1 else np.zeros(len(POINTS))
    return Curve(name, row, POINTS, _rounded(rows.mean(0)), _rounded(sd), _rounded(rows[:, -1]))


def _rounded(values: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 4) for value in values)
