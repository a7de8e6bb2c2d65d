"""Hand jobs to workers, one each, and take what comes back; a job whose worker died is handed out again."""

import importlib.util
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pickle import loads
from typing import Any, Protocol, TypeVar

from gradveil.errors import GradveilError
from gradveil.io.memory import memory_bytes
from gradveil.naming import unknown
from gradveil.parallel.packing import pack, pack_job, using_one_thread
from gradveil.parallel.pools import BACKENDS, LOCAL, Pool

Job = TypeVar("Job")
# What a process needs for torch alone.
MEMORY_OF_A_WORKER = 2**28
MOST_IN_A_CLUSTER = 10_000
Result = TypeVar("Result")


class RunJobs(Protocol):
    """`work(job)` for every job, in whatever order they end; `describe` says which job it is when its workers die."""

    def __call__(
        self, work: Callable[[Job], Result], jobs: Iterable[Job], *, describe: Callable[[Job], str] = ...
    ) -> Iterator[Result]: ...


def run_jobs(
    work: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    workers: int = 1,
    backend: str = LOCAL,
    describe: Callable[[Job], str] = str,
) -> Iterator[Result]:
    """`work(job)` for every job, in whatever order they end: on processes of this machine, or on a `ray` or `dask` cluster.

    Every job runs on one thread, also when there is one worker: the number of threads changes the last digits of a sum. `work`,
    with all images that it refers to, goes to the workers once; a job should be small.
    """
    with starting_workers(workers, backend) as run:
        yield from run(work, jobs, describe=describe)


@contextmanager
def starting_workers(workers: int, backend: str = LOCAL, *, apart: bool = False) -> Iterator[RunJobs]:
    """As `run_jobs`, with the same workers again and again: it takes seconds until new ones have imported what they need.

    `workers` is how many jobs are under way at once. One local worker is this process, unless it should be `apart`.
    """
    check_workers(workers, backend)
    if workers == 1 and backend == LOCAL and not apart:
        yield _run_here
        return
    with BACKENDS[backend]() as pool:
        yield partial(_run, pool, workers)


def check_workers(workers: int, backend: str = LOCAL) -> None:
    """Refuse numbers of workers that would take the machine down, or that no cluster has, and backends that are not here."""
    check_backend(backend)
    if backend == LOCAL:
        most = max(1, min(max(16, 4 * (os.cpu_count() or 1)), memory_bytes() // MEMORY_OF_A_WORKER))
        where = f"this machine ({os.cpu_count()} cores, {memory_bytes() / 2**30:.0f} GiB)"
    else:
        most, where = MOST_IN_A_CLUSTER, "a cluster"
    if not 1 <= workers <= most:
        raise GradveilError(f"workers: expected 1 to {most} on {where}, got {workers}")


def check_backend(name: str) -> None:
    """Refuse a backend that cannot run jobs, before anything is computed for it."""
    if name not in BACKENDS:
        raise unknown(name, BACKENDS, "backend")
    library = {"ray": "ray", "dask": "distributed"}.get(name)
    if library is not None and importlib.util.find_spec(library) is None:
        raise GradveilError(f"the {name} backend is not installed: pip install 'gradveil[{name}]'")


def _run_here(
    work: Callable[[Job], Result], jobs: Iterable[Job], *, describe: Callable[[Job], str] = str
) -> Iterator[Result]:
    for job in jobs:
        with using_one_thread():
            result = work(job)
        yield result


@dataclass(frozen=True)
class _Attempt:
    job: Any
    packed: bytes
    number: int = 1


def _run(
    pool: Pool,
    workers: int,
    work: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    describe: Callable[[Job], str] = str,
) -> Iterator[Result]:
    """Keep `workers` jobs under way; what has come back is yielded when the next ones are."""
    waiting = iter(jobs)
    again: list[_Attempt] = []
    running: dict[Future[bytes], _Attempt] = {}
    shared: Any = None

    def fill() -> None:
        nonlocal shared
        while len(running) < workers:
            if again:
                attempt = again.pop()
            else:
                try:
                    job = next(waiting)
                except StopIteration:
                    return
                attempt = _Attempt(job, pack_job(job, by_value=pool.remote))
            if shared is None:  # not before there is a job
                shared = pool.share(pack(work, by_value=pool.remote))
            running[pool.submit(shared, attempt.packed)] = attempt

    hopeless: GradveilError | None = None
    try:
        fill()
        while running:
            outcomes = []
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                attempt = running.pop(future)
                error = pool.finish(future)
                if error is None:
                    outcomes.append(loads(future.result()))
                elif attempt.number < pool.attempts:
                    again.append(_Attempt(attempt.job, attempt.packed, attempt.number + 1))
                else:
                    hopeless = _explain_death(describe(attempt.job), attempt.number, error)
            if hopeless is None:  # otherwise no new ones; those under way may end
                fill()
            for outcome in outcomes:
                yield outcome.unwrap()
        if hopeless is not None:
            raise hopeless
    finally:
        pool.cancel(running)


def _explain_death(job: str, times: int, error: Exception) -> GradveilError:
    reason = textwrap.shorten(f"{type(error).__name__}: {error}", 160)
    return GradveilError(
        f"the worker of one job died {times} times, perhaps for want of memory: {textwrap.shorten(job, 160)} ({reason}); "
        "results of other jobs are kept; use fewer workers"
    )
