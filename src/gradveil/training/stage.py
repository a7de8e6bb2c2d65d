"""How far a network was trained before it is attacked."""

from dataclasses import dataclass
from functools import total_ordering
from typing import Literal

StageUnit = Literal["steps", "rounds", "epochs", "weights"]


@total_ordering
@dataclass(frozen=True)
class Stage:
    """A stage of training: `count` training steps, federated rounds or epochs, or `weights` that were given.

    `trained_with` is the defense that was on in training, where that is known. `defense_untrained` says that the attacked
    network has parts of the defense which the training did not. `threat` names the one whose participants took the rounds.

        str(Stage())                            # untrained
        str(Stage("steps", 20))                 # after 20 training steps
        str(Stage("epochs", 12, "prune:0.7"))   # trained for 12 epochs with prune:0.7
    """

    unit: StageUnit = "steps"
    count: float = 0
    trained_with: str = ""
    defense_untrained: bool = False
    threat: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", float(self.count))

    def __str__(self) -> str:
        words = {
            "steps": f"after {self.count:g} training steps" if self.count else "untrained",
            "rounds": f"after {self.count:g} {'round' if self.count == 1 else 'rounds'}",
            "epochs": f"trained for {self.count:g} epochs",
            "weights": "weights as given",
        }[self.unit]
        return (
            words
            + (f" of {self.threat}" if self.threat else "")
            + (f" with {self.trained_with}" if self.trained_with else "")
            + (", what the defense adds untrained" if self.defense_untrained else "")
        )

    def __lt__(self, other: "Stage") -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, float, str]:
        """From untrained to trained."""
        return {"steps": 0, "rounds": 0, "epochs": 1, "weights": 2}[self.unit], self.count, str(self)
