"""Where jobs run: processes of this machine, or a cluster."""

import math
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import resource_tracker as python_tracker
from pathlib import Path
from typing import Any, ClassVar, Protocol

from joblib.externals.loky import process_executor
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from gradveil.parallel.clusters import opening_dask, opening_ray
from gradveil.parallel.packing import Packed, call

LOCAL = "loky"
# Idle processes end after so many seconds; until then the next pool takes them, as it takes seconds to import torch.
# An executor takes jobs and never does them once its process has left: well before that it is not used any more.
IDLE, USABLE = 300, 200


class Pool(Protocol):
    """Runs `call` elsewhere, one job per worker at a time. A future fails only if the worker died."""

    # Whether workers may be on machines that lack the files of this one.
    remote: bool
    # How often a job is given out before its workers' deaths are its own fault.
    attempts: int

    def share(self, work: Packed) -> Any:
        """Put the work where all workers find it, once, and give what jobs name it by."""
        ...

    def submit(self, work: Any, job: bytes) -> "Future[bytes]":
        """Start one job."""
        ...

    def finish(self, future: "Future[bytes]") -> Exception | None:
        """Take note that a future is done; gives the error if its worker died."""
        ...

    def cancel(self, futures: Iterable["Future[bytes]"]) -> None:
        """Give up jobs that nobody waits for any more."""
        ...


@contextmanager
def opening_processes() -> Iterator[Pool]:
    """Processes of this machine."""
    pool = ProcessPool()
    try:
        yield pool
    finally:
        pool.close()


class ProcessPool:
    """Each worker is an executor of its own: loky gives up all processes of an executor when one of them dies."""

    remote = False
    attempts = 4
    # With the time since when.
    _idle: ClassVar[list[tuple[ProcessPoolExecutor, float]]] = []

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=_prefix(os.getpid())))
        self._busy: dict[Future[bytes], ProcessPoolExecutor] = {}

    def share(self, work: Packed) -> Path:
        for path in self._folder.iterdir():
            path.unlink()
        path = self._folder / f"{work.key}.work"
        work.save(path)
        return path

    def submit(self, work: Path, job: bytes) -> "Future[bytes]":
        while True:
            worker = self._take_idle() or _new_worker()
            try:
                with _sparing_children():
                    future: Future[bytes] = worker.submit(call, work, job)
            except BrokenProcessPool:  # it died while it had nothing to do
                worker.shutdown(kill_workers=True)
                continue
            self._busy[future] = worker
            return future

    def _take_idle(self) -> ProcessPoolExecutor | None:
        while self._idle:
            worker, since = self._idle.pop()
            if time.monotonic() - since <= USABLE:
                return worker
            worker.shutdown(wait=False, kill_workers=True)
        return None

    def finish(self, future: "Future[bytes]") -> Exception | None:
        worker = self._busy.pop(future)
        error = future.exception()
        if error is None:
            self._idle.append((worker, time.monotonic()))
            return None
        worker.shutdown(wait=False, kill_workers=True)
        if not isinstance(error, Exception):
            raise error
        return error

    def cancel(self, futures: Iterable["Future[bytes]"]) -> None:
        for future in futures:
            self._busy.pop(future).shutdown(wait=False, kill_workers=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _prefix(parent: int) -> str:
    return f"gradveil-{parent}-"


def _new_worker() -> ProcessPoolExecutor:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return ProcessPoolExecutor(1, timeout=IDLE, initializer=_follow_parent, initargs=(os.getpid(),), env=threads)


@contextmanager
def _sparing_children() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C, not even while they start; here it is heard a moment later."""
    if not hasattr(signal, "pthread_sigmask"):  # not on every system
        yield
        return
    # Loky starts these with the first process, and would let signals through again after it.
    for tracker in (loky_tracker, python_tracker):
        tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow_parent(parent: int) -> None:
    """In a worker: leave Ctrl-C to the parent, and end soon after it, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Every second loky collects all garbage, which takes up to a tenth of it with torch's many objects. Or, with psutil, which
    # Dask brings along, it ends a process that has grown much in a job, with a warning. Torch keeps memory for the next job; and
    # where warnings are errors, loky's own thread dies of this one and nobody does the next job.
    process_executor._MEMORY_LEAK_CHECK_DELAY = math.inf

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        for folder in Path(tempfile.gettempdir()).glob(f"{_prefix(parent)}*"):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# How `--backend` calls them.
BACKENDS: dict[str, Callable[[], AbstractContextManager[Pool]]] = {
    LOCAL: opening_processes,
    "ray": opening_ray,
    "dask": opening_dask,
}
