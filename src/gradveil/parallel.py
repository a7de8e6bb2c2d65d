"""Run independent jobs in processes of one thread each; results do not depend on how many."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import joblib
import torch

from gradveil.errors import GradveilError

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_jobs(work: Callable[[Job], Result], jobs: Iterable[Job], *, workers: int = 1) -> Iterator[Result]:
    """`work(job)` for every job, in whatever order they end.

    Every job runs on one thread, also when there is one worker: the number of threads changes the last digits of a sum.
    """
    if workers < 1:
        raise GradveilError(f"workers must be at least 1, got {workers}")
    parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
    yield from parallel(joblib.delayed(_on_one_thread)(work, job) for job in jobs)


def _on_one_thread(work: Callable[[Job], Result], job: Job) -> Result:
    with one_thread():
        return work(job)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on a single thread inside the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
