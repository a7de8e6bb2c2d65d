"""Side-by-side timing: ours and the baseline run in turns in one process, and every turn gives a ratio."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Median seconds of both, and the median and quartiles of baseline / ours over the turns."""

    ours: float
    baseline: float
    ratio: float
    quartiles: tuple[float, float]

    def row(self, name: str, settings: str, *, per: float = 1, unit: str = "s") -> dict[str, object]:
        """The comparison as a row of runs/bench.json; `per` and `unit` turn seconds into another figure."""
        rate = unit.endswith("/s")
        return {
            "name": name,
            "value": self.ratio,
            "quartiles": self.quartiles,
            "ours": per / self.ours if rate else self.ours / per,
            "baseline": per / self.baseline if rate else self.baseline / per,
            "unit": unit,
            "settings": settings,
        }


def row_of_ratios(
    name: str, ratios: Sequence[float], settings: str, *, ours: float, baseline: float, unit: str
) -> dict[str, object]:
    """A row of runs/bench.json for figures that are not seconds."""
    low, middle, high = _quartiles(ratios)
    return {
        "name": name,
        "value": middle,
        "quartiles": (low, high),
        "ours": ours,
        "baseline": baseline,
        "unit": unit,
        "settings": settings,
    }


def side_by_side(
    ours: Callable[[], object],
    baseline: Callable[[], object],
    *,
    turns: int,
    in_a_row: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Time both in `turns` turns after one run to warm up; in a turn each is called `in_a_row` times.

    With `clock=time.process_time`, for work in one thread, the time in which others had the core does not count.
    """
    ours()
    baseline()
    times = [(_seconds(ours, in_a_row, clock), _seconds(baseline, in_a_row, clock)) for _ in range(turns)]
    ratios = [theirs / mine for mine, theirs in times]
    low, middle, high = _quartiles(ratios)
    mine, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    return Comparison(mine, theirs, middle, (low, high))


def _quartiles(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Quartiles and median within what was measured, also of one or two turns."""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [*ratios] * 3
    return low, middle, high


def _seconds(work: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        work()
    return (clock() - start) / calls
