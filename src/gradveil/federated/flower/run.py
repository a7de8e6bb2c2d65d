"""The settings of a training on Flower, as data that fits into Flower's run configuration."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gradveil.datasets import load
from gradveil.devices import CPU, Device, parse_device
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.flower.nodes import Nodes
from gradveil.federated.flower.setup import DATA_DIR, DEVICE
from gradveil.federated.folder import CHECKPOINT
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.rounds import FederatedResult, federate
from gradveil.federated.training import EVALUATIONS
from gradveil.io.typed_json import from_json
from gradveil.progress import Progress, silent

# Characters of the settings of a curious server.
LARGEST = 2**20


@dataclass(frozen=True)
class FlowerRun:
    """A training on Flower. The server waits `timeout` seconds for updates, and `patience` seconds until everybody is there.

    It computes on `device`, and so do participants on its machine.
    """

    plan: FederatedPlan
    folder: Path
    curiosity: Curiosity | None = None
    evaluations: int = EVALUATIONS
    timeout: float = 300.0
    patience: float = 300.0
    data_dir: Path | None = None
    device: Device = CPU

    def __post_init__(self) -> None:
        for what, seconds in (("an update", self.timeout), ("participants", self.patience)):
            if not 0 < seconds <= 86_400:
                raise GradveilError(f"waiting for {what}: expected above 0 and up to 86400 seconds, got {seconds:g}")

    def to_config(self) -> dict[str, str | int | float]:
        """As Flower's run configuration."""
        return {
            "plan": self.plan.to_json(),
            "folder": str(self.folder),
            "curiosity": "" if self.curiosity is None else json.dumps(asdict(self.curiosity)),
            "evaluations": self.evaluations,
            "timeout": float(self.timeout),
            "patience": float(self.patience),
            DATA_DIR: "" if self.data_dir is None else str(self.data_dir),
            DEVICE: self.device.text,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> "FlowerRun":
        """Read what `to_config` wrote."""
        try:
            curious = str(config["curiosity"])
            return cls(
                plan=FederatedPlan.from_json(str(config["plan"])),
                folder=Path(str(config["folder"])),
                curiosity=from_json(Curiosity, curious, largest=LARGEST) if curious else None,
                evaluations=int(str(config["evaluations"])),
                timeout=float(str(config["timeout"])),
                patience=float(str(config["patience"])),
                data_dir=Path(str(config[DATA_DIR])) if config[DATA_DIR] else None,
                device=parse_device(str(config[DEVICE])),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise GradveilError(
                f"not a run configuration of gradveil ({error}); `gradveil federate --engine flower` writes one"
            ) from error

    def serve(self, nodes: Nodes, *, progress: Progress = silent) -> FederatedResult:
        """Wait for everybody and train. A training that goes on does so with those who came back."""
        dataset = load(self.plan.dataset, data_dir=self.data_dir, seed=self.plan.seed, progress=silent)
        nodes.wait(self.patience, resumed=(self.folder / CHECKPOINT).is_file())
        return federate(
            self.plan,
            dataset,
            self.folder,
            curiosity=self.curiosity,
            gather=nodes.gather,
            evaluations=self.evaluations,
            device=self.device,
            progress=progress,
        )
