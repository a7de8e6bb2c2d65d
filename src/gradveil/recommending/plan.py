"""A recommendation as data: which network, which threat, which candidates, and how much time there is."""

import re
from dataclasses import dataclass
from pathlib import Path

from gradveil.attacks import parse_attack
from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.stages import TRAINED, round_stages
from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.io.files import file_sha256
from gradveil.leakage.threat import PLAIN, THREATS, Threat
from gradveil.training.early import MOST_STEPS
from gradveil.training.stage import Stage


@dataclass(frozen=True)
class Level:
    """How closely a round looks: `images` attacked with `iterations`, and `trainings` of `epochs` epochs."""

    images: int
    iterations: int
    epochs: int
    trainings: int


# Everything doubles, until attacks are long enough to count; from there on only images do, and records are used again.
LEVELS = (
    Level(6, 80, 2, 1),
    Level(12, 160, 6, 1),
    Level(24, 200, 6, 2),
    Level(48, 200, 6, 3),
    Level(96, 200, 6, 3),
    Level(192, 200, 6, 3),
)
# Attacks that check an answer are as long as attacks get, however many rounds there are.
CHECK_ITERATIONS = LEVELS[-1].iterations


@dataclass(frozen=True)
class RecommendPlan:
    """Everything that decides a recommendation for a model on a dataset.

    - `candidates` are texts as `parse_candidate` reads them; `none` is always there, to compare with.
    - `budget` is in minutes of wall time, `points` how many points of accuracy may be lost.
    - `epochs` are those of the training, without a defense, of the network that a threat on a trained one attacks; `weights`
      are such a network.
    - `levels` are those of the rounds. `check` is on how many other images the answers are checked, as far as the budget goes.

        RecommendPlan("convnet-16", ("prune:0.99", "batch:8"), budget=10)
    """

    model: str
    candidates: tuple[str, ...]
    threat: Threat = THREATS[PLAIN]
    weights: Path | None = None
    attacks: tuple[str, ...] = ("fast",)
    budget: float = 30.0
    points: float = 2.0
    tolerance: float = TOLERANCE
    seed: int = 0
    device: Device = CPU
    levels: tuple[Level, ...] = LEVELS
    check: int = 96
    epochs: int = 12

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(dict.fromkeys(["none", *self.candidates])))
        if not 0 < self.budget <= 100_000:
            raise GradveilError(f"expected a budget above 0 minutes, such as 30, got {self.budget:g}")
        if not 1 <= self.epochs <= 100_000:
            raise GradveilError(f"expected 1 to 100000 epochs, such as 12, got {self.epochs}")
        if not 0 <= self.points <= 100:
            raise GradveilError(f"expected 0 to 100 points of accuracy, such as 2, got {self.points:g}")
        if not 0 <= self.check <= 10_000:
            raise GradveilError(f"expected 0 to 10000 images to check answers on, such as 96, got {self.check}")
        if len(self.candidates) == 1:
            raise GradveilError("expected candidates besides none, such as prune:0.99,batch:8, got none")
        for attack in self.attacks:
            parse_attack(attack)
        _ = self.stage

    @property
    def stage(self) -> Stage:
        """How far the attacked network is trained."""
        if self.weights is not None:
            return Stage("weights")
        if self.threat.rounds:
            if self.threat.stages or len(self.threat.rounds) > 1:
                raise GradveilError(f"threat {self.threat.name} attacks several times: expected one round or one stage")
            return round_stages(self.threat)[0]
        stages = self.threat.stages or ("0",)
        if stages == (TRAINED,):
            return Stage("epochs", self.epochs)
        if len(stages) > 1 or re.fullmatch(r"\d{1,6}", stages[0]) is None or int(stages[0]) > MOST_STEPS:
            raise GradveilError(
                f"threat {self.threat.name} attacks at {', '.join(stages)}: expected one stage such as 0, 20 or trained"
            )
        return Stage("steps", int(stages[0]))

    def settings(self, dataset: str) -> dict[str, str]:
        """What a folder's recommendation must have in common with this one to be gone on with."""
        return {
            "model": self.model,
            "dataset": dataset,
            "weights": "" if self.weights is None else file_sha256(self.weights),
            "threat": str(self.threat),
            "attacks": ",".join(self.attacks),
            "candidates": " ; ".join(self.candidates),
            "seed": str(self.seed),
            "device": self.device.kind,
            **({"epochs": str(self.epochs)} if self.stage.unit == "epochs" else {}),
        }
