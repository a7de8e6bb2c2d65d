"""Run independent jobs in processes of one thread each; results do not depend on how many."""

import itertools
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from typing import Protocol, TypeVar

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from joblib.pool import PicklingPool

from gradveil.errors import GradveilError
from gradveil.progress import Advance

Job = TypeVar("Job")
Result = TypeVar("Result")

LOCAL = "loky"  # joblib's name for processes on this machine


class RunJobs(Protocol):
    """`work(job)` for every job, in whatever order they end."""

    def __call__(self, work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]: ...


def run_jobs(
    work: Callable[[Job], Result], jobs: Iterable[Job], *, workers: int = 1, backend: str = LOCAL
) -> Iterator[Result]:
    """`work(job)` for every job, in whatever order they end, on processes of this machine or any joblib backend (`ray`, ...).

    Every job runs on one thread, also when there is one worker: the number of threads changes the last digits of a sum.
    """
    with starting_workers(workers, backend) as run:
        yield from run(work, jobs)


@contextmanager
def starting_workers(workers: int, backend: str = LOCAL) -> Iterator[RunJobs]:
    """As `run_jobs`, with the same workers again and again: it takes seconds until new ones have imported what they need."""
    if workers < 1:
        raise GradveilError(f"workers must be at least 1, got {workers}")

    def calls(work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[object]:
        return (joblib.delayed(_on_one_thread)(work, job) for job in jobs)

    with _using_backend(backend), _explaining_death():
        if workers == 1 or _streams_results():
            # Such a backend keeps its processes by itself.
            parallel = joblib.Parallel(
                n_jobs=workers, backend=LOCAL if workers == 1 else None, return_as="generator_unordered"
            )
            yield lambda work, jobs: parallel(calls(work, jobs))
            return
        with joblib.Parallel(n_jobs=workers) as parallel:

            def a_few_at_a_time(work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
                # Results come all together: of few jobs little is lost when killed.
                waiting = calls(work, jobs)
                while some := list(itertools.islice(waiting, 4 * workers)):
                    yield from parallel(some)

            yield a_few_at_a_time


@contextmanager
def _explaining_death() -> Iterator[None]:
    try:
        yield
    except TerminatedWorkerError as error:
        raise GradveilError("a worker process died, perhaps for want of memory; use fewer workers") from error


def _streams_results() -> bool:
    try:
        joblib.Parallel(n_jobs=2, return_as="generator_unordered")
    except ValueError:
        return False
    return True


def check_backend(name: str) -> None:
    """Refuse a backend that cannot run jobs, before anything is computed for it."""
    with _using_backend(name):
        pass


@contextmanager
def _using_backend(name: str) -> Iterator[None]:
    if name == "threading":
        raise GradveilError("expected a backend with a process per worker, such as loky, got 'threading'")
    if name == "ray":
        try:
            from ray.util.joblib import register_ray
        except ImportError as error:
            raise GradveilError("the ray backend needs Ray: pip install 'gradveil[ray]'") from error
        register_ray()  # type: ignore[no-untyped-call]
    try:
        configured = joblib.parallel_config(backend=name)
    except ValueError as error:
        raise GradveilError(f"unknown backend {name!r}; expected loky, ray or another joblib backend") from error
    pool = PicklingPool.__bases__
    try:
        with configured:
            yield
    finally:
        # Ray's backend puts its own pool below joblib's and leaves it there: `multiprocessing` would start Ray from then on.
        PicklingPool.__bases__ = pool


@contextmanager
def listening_to_workers(advance: Advance, *, workers: int) -> Iterator[Advance]:
    """A function that jobs may call wherever they run, to tell `advance` in this process how far they are."""
    if workers == 1:
        yield advance
        return
    key = secrets.token_bytes(16)
    with Listener(backlog=64, authkey=key) as listener:
        report = partial(_report, listener.address, key)
        thread = threading.Thread(target=_listen, args=(listener, advance), daemon=True)
        thread.start()
        try:
            yield report
        finally:
            report(_GOODBYE)
            thread.join()


# Nobody is ever this far back.
_GOODBYE = -1


def _listen(listener: Listener, advance: Advance) -> None:
    while True:
        try:
            with listener.accept() as connection:
                units = int(connection.recv_bytes(20))
        except (OSError, EOFError, AuthenticationError):
            continue  # a worker died while it reported; the others go on
        if units == _GOODBYE:
            return
        advance(units)


def _report(address: str | tuple[str, int], key: bytes, units: int) -> None:
    with Client(address, authkey=key) as connection:
        connection.send_bytes(str(units).encode())


def _on_one_thread(work: Callable[[Job], Result], job: Job) -> Result:
    with using_one_thread():
        return work(job)


@contextmanager
def using_one_thread() -> Iterator[None]:
    """Compute on a single thread inside the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
