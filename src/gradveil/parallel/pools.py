"""Where jobs run: processes of this machine, a Ray cluster, or a Dask cluster."""

import logging
import os
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from multiprocessing import resource_tracker as python_tracker
from pathlib import Path
from typing import Any, ClassVar, Protocol

from joblib.externals.loky import process_executor
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from gradveil.errors import GradveilError
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
    # With psutil, which Dask brings along, loky ends a process that has grown much in a job, with a warning. Torch keeps memory
    # for the next job; and where warnings are errors, loky's own thread dies of this one and nobody does the next job.
    process_executor._USE_PSUTIL = False

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        for folder in Path(tempfile.gettempdir()).glob(f"{_prefix(parent)}*"):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def opening_ray() -> Iterator[Pool]:
    """The Ray cluster that the program is connected to, else that of $RAY_ADDRESS or of this machine, else a new one."""
    try:
        import ray
    except ImportError as error:
        raise GradveilError("the ray backend needs Ray: pip install 'gradveil[ray]'") from error
    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.WARNING,
                _node_ip_address=_own_address(),
            )
        except ConnectionError as error:
            raise GradveilError(f"cannot reach the Ray cluster: {error}; check $RAY_ADDRESS") from error
    try:
        yield RayPool()
    finally:
        if mine:
            ray.shutdown()


def _own_address() -> str | None:
    """A cluster that starts here listens to nobody else; one that runs already is reached wherever it is."""
    running = "RAY_ADDRESS" in os.environ or Path(tempfile.gettempdir(), "ray", "ray_current_cluster").exists()
    return None if running else "127.0.0.1"


class RayPool:
    """Tasks of one CPU each; the work is in Ray's object store, once per machine."""

    remote = True
    attempts = 4

    def __init__(self) -> None:
        import ray

        # Ray would try again by itself, but not say which job it was.
        self._call = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(call)
        self._busy: dict[Future[bytes], Any] = {}

    def share(self, work: Packed) -> Any:
        import ray

        return ray.put(work)

    def submit(self, work: Any, job: bytes) -> "Future[bytes]":
        running = self._call.remote(work, job)
        future: Future[bytes] = running.future()
        self._busy[future] = running
        return future

    def finish(self, future: "Future[bytes]") -> Exception | None:
        del self._busy[future]
        return _death(future)

    def cancel(self, futures: Iterable["Future[bytes]"]) -> None:
        import ray

        for future in futures:
            ray.cancel(self._busy.pop(future), force=True)


@contextmanager
def opening_dask() -> Iterator[Pool]:
    """The Dask cluster that the program is connected to, else that of $DASK_SCHEDULER_ADDRESS, else one of this machine."""
    try:
        import dask
        from distributed import Client, LocalCluster, default_client
    except ImportError as error:
        raise GradveilError("the dask backend needs Dask: pip install 'gradveil[dask]'") from error
    with ExitStack() as stack:
        address = dask.config.get("scheduler-address", None)
        try:
            client = default_client()  # type: ignore[no-untyped-call]
        except ValueError:  # nobody is connected
            if address is None:
                cores = os.cpu_count() or 1
                cluster = LocalCluster(n_workers=cores, threads_per_worker=1, dashboard_address=None)  # type: ignore[no-untyped-call]
                client = stack.enter_context(Client(stack.enter_context(cluster)))  # type: ignore[no-untyped-call]
            else:
                client = stack.enter_context(_reach_scheduler(address))
        yield DaskPool(client)


def _reach_scheduler(address: str) -> Any:
    from distributed import Client

    try:
        return Client(address)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise GradveilError(f"cannot reach the Dask scheduler at {address}; check $DASK_SCHEDULER_ADDRESS") from error


class DaskPool:
    """Tasks of a Dask cluster; the work is a task of its own, which the scheduler does again where a worker died with it."""

    remote = True
    # Besides those of the scheduler, which itself gives a task whose worker died to three more.
    attempts = 4

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executor = client.get_executor(pure=False)

    def share(self, work: Packed) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")  # once
            return self._client.submit(_hold, work, pure=False)

    def submit(self, work: Any, job: bytes) -> "Future[bytes]":
        future: Future[bytes] = self._executor.submit(call, work, job)
        return future

    def finish(self, future: "Future[bytes]") -> Exception | None:
        return _death(future)

    def cancel(self, futures: Iterable["Future[bytes]"]) -> None:
        for future in futures:
            future.cancel()


def _hold(work: Packed) -> Packed:
    return work


def _death(future: "Future[bytes]") -> Exception | None:
    if future.cancelled():  # nobody here did: the work was lost with the worker that kept it
        return CancelledError("the work was lost")
    error = future.exception()
    if error is None or isinstance(error, Exception):
        return error
    raise error


# How `--backend` calls them.
BACKENDS: dict[str, Callable[[], AbstractContextManager[Pool]]] = {
    LOCAL: opening_processes,
    "ray": opening_ray,
    "dask": opening_dask,
}
