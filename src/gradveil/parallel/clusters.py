"""Clusters that jobs run on: Ray and Dask."""

import logging
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradveil.errors import GradveilError
from gradveil.parallel.packing import Packed, call

if TYPE_CHECKING:
    from gradveil.parallel.pools import Pool

LOOPBACK = "127.0.0.1"


@contextmanager
def opening_ray() -> "Iterator[Pool]":
    """The Ray cluster that the program is connected to, else that of $RAY_ADDRESS or of this machine, else a new one."""
    try:
        import ray
    except ImportError as error:
        raise GradveilError("the ray backend needs Ray: pip install 'gradveil[ray]'") from error
    mine = not ray.is_initialized()
    if mine:
        try:
            with keeping_loopback():
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
    return None if running else LOOPBACK


@contextmanager
def keeping_loopback() -> Iterator[None]:
    """Ray started in the block listens on the loopback alone if it is told to.

    Otherwise it replaces 127.0.0.1 by the address that this machine has on its network. The switch is the one that Ray has for
    Windows and macOS, $RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER, which it reads when it is imported.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


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
def opening_dask() -> "Iterator[Pool]":
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
