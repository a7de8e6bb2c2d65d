"""What all parts of the Flower engine agree on; nothing heavy is imported here."""

import importlib.util
import os

from gradveil.errors import GradveilError

# Keys of a node's --node-config: which participant it is, where its images are, and what it computes on.
NUMBER, DATA_DIR, DEVICE = "partition-id", "data-dir", "device"
# Flower and Ray read these when they are imported, and then send nothing about the run to anybody.
NO_TELEMETRY = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without this setting Ray warns of a change of its own.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# How gradveil's own lines begin in Flower's log of a run, and how the one begins that says why it failed.
LOGGED, FAILED = "gradveil: ", "failed: "


def check_flower(*, ray: bool) -> None:
    """Refuse to go on, and say what to install, where Flower (or Ray for its simulation) is missing."""
    for module, name, extra in (("flwr", "Flower", "flower"), ("ray", "Ray", "flower,ray"))[: 2 if ray else 1]:
        if importlib.util.find_spec(module) is None:
            raise GradveilError(f"the flower engine needs {name}: pip install 'gradveil[{extra}]'")


def disable_telemetry() -> None:
    """Keep Flower and Ray, once they are imported, from reporting it to their makers; what the user has set stays."""
    for name, value in NO_TELEMETRY.items():
        os.environ.setdefault(name, value)
