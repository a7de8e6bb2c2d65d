"""An audit as data: which defenses are tried against which attacks, at which stages of training, on how many images."""

import re
from dataclasses import dataclass

from gradveil.attacks import Attacker, parse_attack
from gradveil.defenses import parse_defense
from gradveil.errors import GradveilError
from gradveil.leakage.scenario import UNDEFENDED, Scenario, ScenarioKey
from gradveil.training.early import MOST_STEPS

RANDOM = "random"
TRAINED = "trained"


@dataclass(frozen=True)
class Cell:
    """One defense at one stage against one attack, by an attacker who knows it or not."""

    stage: str
    defense: str
    attack: str
    attacker: Attacker


@dataclass(frozen=True)
class AuditPlan:
    """Everything that decides an audit.

    `stages` are numbers of training steps, or `trained`: after `epochs` epochs with the defense on, or the weights given.
    Accuracy is that of `trainings` trainings per defense, none for 0. `eps` are PSNRs in dB that a reconstruction should not
    reach. Undefended gradients and random policies are always there, to compare with; and every defense meets an attacker
    who knows it.
    """

    dataset: str
    model: str
    defenses: tuple[str, ...]
    attacks: tuple[str, ...] = ("fast",)
    stages: tuple[str, ...] = ("0",)
    images: int = 32
    eps: tuple[float, ...] = (20.0,)
    iterations: int | None = None
    epochs: int = 12
    trainings: int = 0
    weights: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        defenses = dict.fromkeys([UNDEFENDED, RANDOM, *(str(parse_defense(one, files=False)) for one in self.defenses)])
        object.__setattr__(self, "defenses", tuple(defenses))
        for what, values in (("attack", self.attacks), ("stage", self.stages), ("eps", self.eps)):
            if not values or len(set(values)) != len(values):
                raise GradveilError(f"an audit needs every {what} once and at least one, got {list(values)}")
        for attack in self.attacks:
            parse_attack(attack, iterations=self.iterations)
        for stage in self.stages:
            if stage != TRAINED and (re.fullmatch(r"\d{1,6}", stage) is None or int(stage) > MOST_STEPS):
                raise GradveilError(
                    f"stage {stage!r}: a number of training steps such as 0 or 20, or trained, would do"
                )
        if not 1 <= self.images <= 100_000 or not 0 <= self.trainings <= 100 or not 1 <= self.epochs <= 100_000:
            raise GradveilError(
                f"an audit takes 1 to 100000 images, 0 to 100 trainings and 1 to 100000 epochs, got {self.images}, "
                f"{self.trainings} and {self.epochs}"
            )
        if not all(0 < value < 200 for value in self.eps):
            raise GradveilError(f"eps is a PSNR in dB such as 20, got {', '.join(f'{value:g}' for value in self.eps)}")
        if self.weights is not None and self.stages != (TRAINED,):
            raise GradveilError("weights bring the stage with them: --stages trained would do")

    @property
    def cells(self) -> list[Cell]:
        """The matrix."""
        return [
            Cell(stage, defense, attack, attacker)
            for stage in self.stages
            for defense in self.defenses
            for attack in self.attacks
            for attacker in attackers_of(defense)
        ]

    def in_words(self, stage: str) -> str:
        """A stage as records say it."""
        if stage != TRAINED:
            return "untrained" if int(stage) == 0 else f"after {int(stage)} training steps"
        return "trained, weights as given" if self.weights is not None else f"trained for {self.epochs} epochs"

    def scenario(self, cell: Cell) -> Scenario:
        """What is attacked in a cell."""
        return ScenarioKey(
            self.dataset,
            self.model,
            self.in_words(cell.stage),
            cell.defense,
            cell.attack,
            self.iterations,
            self.seed,
            attacker=cell.attacker,
        ).parse()


def attackers_of(defense: str) -> tuple[Attacker, ...]:
    """Who attacks it: what is undefended leaves nothing to know."""
    return ("plain",) if defense == UNDEFENDED else ("plain", "adaptive")


def parse_defenses(text: str) -> tuple[str, ...]:
    """`none,precode:k=64,beta=1e-3,3-1-7` to names: what looks like a setting belongs to the defense before it."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and re.match(r"\s*[a-z_]+\s*=", part):
            parts[-1] += f",{part.strip()}"
        else:
            parts.append(part.strip())
    if not all(parts):
        raise GradveilError(f"a defense is missing in {text!r}; something like none,3-1-7,prune:0.9 would do")
    return tuple(parts)
