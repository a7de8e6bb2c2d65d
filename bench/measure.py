"""Side-by-side timing: both candidates run in turns in one process, medians are compared."""

import statistics
import time
from collections.abc import Callable


def median_seconds(works: tuple[Callable[[], object], ...], repeats: int, in_a_row: int = 1) -> list[float]:
    """The median time of each piece of work, after one run to warm up; a measurement is the mean of `in_a_row` calls."""
    times: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for _ in range(repeats):
        for work, measured in zip(works, times, strict=True):
            start = time.perf_counter()
            for _ in range(in_a_row):
                work()
            measured.append((time.perf_counter() - start) / in_a_row)
    return [statistics.median(measured) for measured in times]
