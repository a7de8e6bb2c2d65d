"""Short jobs in bundles: a worker that got them one by one would wait for its next job as long as it works on one."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from gradveil.parallel.jobs import RunJobs

Job = TypeVar("Job")
Result = TypeVar("Result")

# Long beside the milliseconds until a worker has its next job, short beside what a user would mind to lose.
SECONDS = 0.25
MOST = 64


@dataclass(frozen=True)
class _Bundle(Generic[Result]):
    results: list[Result]
    seconds: float


def run_in_bundles(
    run: RunJobs,
    work: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    workers: int,
    expected: int,
    describe: Callable[[Job], str] = str,
) -> Iterator[Result]:
    """As `run(work, jobs)`, several jobs at a time: twice as many whenever the last bundle took less than `SECONDS`.

    There are at most `expected` jobs. Towards the end bundles are small, so that no worker waits long for the last one.
    """
    size, left, waiting = 1, expected, iter(jobs)

    def bundles() -> Iterator[list[Job]]:
        nonlocal left
        while bundle := list(islice(waiting, max(1, min(size, left // (2 * workers))))):
            left -= len(bundle)
            yield bundle

    for bundle in run(partial(_work_through, work), bundles(), describe=partial(_describe, describe)):
        if bundle.seconds < SECONDS and len(bundle.results) == size:
            size = min(2 * size, MOST)
        elif bundle.seconds > 4 * SECONDS:
            size = max(1, size // 2)
        yield from bundle.results


def _work_through(work: Callable[[Job], Result], jobs: list[Job]) -> _Bundle[Result]:
    start = time.perf_counter()
    results = [work(job) for job in jobs]
    return _Bundle(results, time.perf_counter() - start)


def _describe(describe: Callable[[Job], str], jobs: list[Job]) -> str:
    return "; ".join(map(describe, jobs))
