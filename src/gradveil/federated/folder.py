"""The run folder of a collaborative training: the names of its files, and what is trained in it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.history import HISTORY
from gradveil.federated.plan import FederatedPlan
from gradveil.io.files import claim

SETTINGS, ATTACK_SETTINGS, LOG = "settings.json", "curious.json", "log.txt"
WEIGHTS = "last.safetensors"
# Of a training with a server, and of one without.
CHECKPOINT, CHECKPOINTS = "checkpoint.safetensors", "checkpoints"


@contextmanager
def claiming(
    folder: Path,
    plan: FederatedPlan,
    curiosity: Curiosity | None,
    topology: str | None = None,
    *,
    device: Device = CPU,
) -> Iterator[None]:
    """Write down what is trained and recorded in `folder`, or refuse when something else already is.

    What could not even begin leaves nothing: refused before the first checkpoint, it does not keep the folder from the next try.
    """
    fresh = not (folder / SETTINGS).exists()
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    curious = None if curiosity is None else json.loads(json.dumps(asdict(curiosity)))
    around = {"curious": curious, "topology": topology, "device": device.kind}
    claim(folder / SETTINGS, json.loads(plan.to_json()) | around)
    try:
        yield
    except GradveilError:
        if fresh and not (folder / CHECKPOINT).exists() and not (folder / CHECKPOINTS).exists():
            for name in (SETTINGS, ATTACK_SETTINGS, LOG, HISTORY, "curious.log"):
                (folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # somebody else has put something into it
                for path in new:
                    path.rmdir()
        raise
