"""The run folder of a collaborative training: what is trained in it, and checkpoints."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.history import HISTORY
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.server import Server
from gradveil.io.files import claim
from gradveil.io.tensors import read_facts, read_tensors, write_tensors

SETTINGS, ATTACK_SETTINGS, LOG = "settings.json", "curious.json", "log.txt"
# Of a training with a server, and of one without.
CHECKPOINT, CHECKPOINTS = "checkpoint.safetensors", "checkpoints"
CHECKPOINT_FORMAT = "gradveil-round"


@contextmanager
def claiming(
    folder: Path, plan: FederatedPlan, curiosity: Curiosity | None, topology: str | None = None
) -> Iterator[None]:
    """Write down what is trained and recorded in `folder`, or refuse when something else already is.

    What could not even begin does not keep the folder from the next try: refused before the first checkpoint, it leaves nothing.
    """
    fresh = not (folder / SETTINGS).exists()
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    curious = None if curiosity is None else json.loads(json.dumps(asdict(curiosity)))
    claim(folder / SETTINGS, {**json.loads(plan.to_json()), "curious": curious, "topology": topology})
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


def write_checkpoint(path: Path, server: Server, facts: Mapping[str, object]) -> None:
    """Weights and momentum of `server`, and what else resuming needs, in one file."""
    write_tensors(path, server.state(), CHECKPOINT_FORMAT, facts)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The server's state and the facts that `write_checkpoint` was given."""
    return read_tensors(path, "checkpoint"), read_facts(path, "checkpoint", CHECKPOINT_FORMAT)
