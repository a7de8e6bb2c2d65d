"""Flower's simulation on Ray: every participant a virtual node on this machine."""

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gradveil.errors import GradveilError
from gradveil.federated.flower.setup import check_flower, disable_telemetry
from gradveil.parallel.clusters import LOOPBACK, keeping_loopback
from gradveil.progress import Progress, silent

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

    from gradveil.federated.flower.run import FlowerRun
    from gradveil.federated.rounds import FederatedResult


def simulate(run: "FlowerRun", *, workers: int = 1, progress: Progress = silent) -> "FederatedResult":
    """Train as `run` says with `workers` processes of one thread each; the result does not depend on their number.

    Starting Ray takes longer than a short training: about 15 s.
    """
    check_flower(ray=True)
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        raise GradveilError("Flower's simulation starts and stops Ray, which runs already; use ray.shutdown() first")
    results: list[FederatedResult] = []
    stopped = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="gradveil-flower-") as home,
        _restoring_environment(),
        _silencing("flwr"),
        keeping_loopback(),
    ):
        disable_telemetry()
        # Flower writes a name for this machine into the user's home, even without telemetry.
        os.environ.setdefault("FLWR_HOME", home)
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

        from gradveil.federated.flower.app import make_client_app
        from gradveil.federated.flower.nodes import Nodes

        server = ServerApp()

        @server.main()
        def serve(grid: "Grid", context: "Context") -> None:
            results.append(run.serve(Nodes(grid, run.plan, run.timeout, stopped), progress=progress))

        try:
            run_simulation(
                server,
                make_client_app(run.data_dir, trusted=run.plan, device=run.device.text),
                run.plan.participants,
                backend_config={
                    "init_args": {
                        "num_cpus": workers,
                        # Nobody on the network needs to reach it.
                        "_node_ip_address": LOOPBACK,
                        "num_gpus": 0,
                        "include_dashboard": False,
                        "log_to_driver": False,
                        "logging_level": logging.CRITICAL,
                    },
                    "client_resources": {"num_cpus": 1, "num_gpus": 0},
                },
            )
        finally:
            # The server runs in a thread of its own, which should not outlive an interrupt.
            stopped.set()
    if not results:
        raise GradveilError("Flower's simulation ended without a result; python -m ray status may say why")
    return results[0]


@contextmanager
def _restoring_environment() -> Iterator[None]:
    """Put environment variables back after the block: Flower changes PYTHONPATH."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _silencing(name: str) -> Iterator[None]:
    """Show nothing that a library logs in the block; errors reach us as exceptions and replies."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
