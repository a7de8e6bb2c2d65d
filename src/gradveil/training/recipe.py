"""How a model is trained, as data."""

from dataclasses import dataclass

from gradveil.errors import GradveilError
from gradveil.schedule import drop_steps


@dataclass(frozen=True)
class Recipe:
    """The papers' recipe: SGD with Nesterov momentum, the rate dropped tenfold at 3/8, 5/8 and 7/8 of the epochs.

    60 epochs reach the accuracy of the paper's 200 (Drabent et al., 2022). `halve_loss` repeats a slip of the published code.
    """

    epochs: int = 60
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    halve_loss: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.epochs <= 100_000:
            raise GradveilError(f"epochs must be 1 to 100000, got {self.epochs}")
        if not 1 <= self.batch_size <= 100_000:
            raise GradveilError(f"batch size must be 1 to 100000, got {self.batch_size}")
        if not 0 < self.lr < 1000:
            raise GradveilError(f"learning rate must lie between 0 and 1000, got {self.lr}")

    @property
    def drops(self) -> list[int]:
        """The epochs before which the learning rate drops."""
        return drop_steps(self.epochs)


@dataclass(frozen=True)
class SteadyRecipe(Recipe):
    """A recipe whose rate does not drop: of two epochs the second would have a hundredth of it, and learn nothing.

    `steady` is there to be written down: the two leave different networks.
    """

    steady: bool = True

    @property
    def drops(self) -> list[int]:
        """None."""
        return [] if self.steady else super().drops


# The model the search looks at: a tenth of the training images, 50 epochs (Gao et al., 2021).
SEMI = Recipe(epochs=50)
SEMI_FRACTION = "[:10%]"
