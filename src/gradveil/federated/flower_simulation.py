"""Flower's simulation on Ray: every participant a virtual node on this machine."""

import importlib.util
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gradveil.errors import GradveilError
from gradveil.progress import Progress, silent

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid

    from gradveil.federated.flower import FlowerRun
    from gradveil.federated.rounds import Federated

# Read by Flower and Ray when they are imported: nobody is told about the run.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray warns of a change of its own unless it is told to make it now.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# How gradveil's own lines begin in Flower's log of a run, and how the one begins that says why it failed.
LOGGED, FAILED = "gradveil: ", "failed: "


def check_flower(*, ray: bool) -> None:
    """Say what to install where Flower, or Ray for its simulation, is missing."""
    for module, name, extra in (("flwr", "Flower", "flower"), ("ray", "Ray", "flower,ray"))[: 2 if ray else 1]:
        if importlib.util.find_spec(module) is None:
            raise GradveilError(f"the flower engine needs {name}: pip install 'gradveil[{extra}]'")


def quiet() -> None:
    """Keep Flower and Ray, once they are imported, from telling anybody about it; what the user has set stays."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def simulate(run: "FlowerRun", *, workers: int = 1, progress: Progress = silent) -> "Federated":
    """Train as `run` says with `workers` processes of one thread each; the result does not depend on their number.

    Starting Ray takes longer than a short training: about 15 s.
    """
    check_flower(ray=True)
    results: list[Federated] = []
    stopped = threading.Event()
    with _environment(), _hushed("flwr"):
        quiet()
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

        from gradveil.federated.flower import participating
        from gradveil.federated.flower_nodes import Nodes

        server = ServerApp()

        @server.main()
        def serve(grid: "Grid", context: "Context") -> None:
            results.append(run.serve(Nodes(grid, run.plan, run.timeout, stopped), progress=progress))

        try:
            run_simulation(
                server,
                participating(run.data_dir),
                run.plan.participants,
                backend_config={
                    "init_args": {
                        "num_cpus": workers,
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
def _environment() -> Iterator[None]:
    """Environment variables are afterwards what they were: Flower changes PYTHONPATH."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _hushed(name: str) -> Iterator[None]:
    """What a library logs is not shown; errors reach us as exceptions and replies."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
