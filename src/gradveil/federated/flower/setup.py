"""What all parts of the Flower engine agree on; nothing heavy is imported here."""

import importlib.util
import os

from gradveil.errors import GradveilError

# What a node says of itself in --node-config: which participant it is, and where its images are.
NUMBER, DATA_DIR = "partition-id", "data-dir"
# Read by Flower and Ray when they are imported: nobody is told about the run.
NO_TELEMETRY = {
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


def disable_telemetry() -> None:
    """Keep Flower and Ray, once they are imported, from telling anybody about it; what the user has set stays."""
    for name, value in NO_TELEMETRY.items():
        os.environ.setdefault(name, value)
