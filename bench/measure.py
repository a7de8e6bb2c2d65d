"""Side-by-side timing: both candidates run in turns in one process, medians are compared."""

import statistics
import time
from collections.abc import Callable


def median_seconds(works: tuple[Callable[[], object], ...], repeats: int) -> list[float]:
    """The median time of each piece of work, after one run to warm up."""
    times: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    for _ in range(repeats):
        for work, measured in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            measured.append(time.perf_counter() - start)
    return [statistics.median(measured) for measured in times]
