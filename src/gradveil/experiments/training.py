"""Trainings, epoch by epoch: does a defense slow them down?"""

import csv
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradveil.defenses import parse_defense
from gradveil.experiments.lab import Lab
from gradveil.experiments.meanings import recipe_in_full
from gradveil.experiments.records import Pieces, Trained
from gradveil.training import Recipe

if TYPE_CHECKING:
    from gradveil.training import TrainingResult

HISTORY = "history.csv"


@dataclass(frozen=True)
class Trainings:
    """Train `model` on `dataset` by `recipe` with each of the defenses, with `seeds` seeds; histories are kept."""

    dataset: str
    model: str
    defenses: tuple[str, ...]
    recipe: Recipe = field(default_factory=Recipe)
    seeds: int = 1
    published: str = ""

    @property
    def datasets(self) -> tuple[str, ...]:
        return (self.dataset,)

    def settings(self) -> list[str]:
        """The part in words."""
        recipe = f"{self.recipe.epochs} epochs, batch {self.recipe.batch_size}, rate {self.recipe.lr:g}"
        return [f"{self.model} on {self.dataset}, {self.seeds} trainings of {recipe} each: {', '.join(self.defenses)}"]

    def meanings(self) -> list[str]:
        """The recipe in full."""
        return [recipe_in_full(self.recipe)]

    def work(self) -> str:
        """How much it is, in a few words."""
        return f"{self.model}: {self.seeds * len(self.defenses)} trainings of {self.recipe.epochs} epochs"

    def run(self, lab: Lab) -> Pieces:
        """Train what is missing."""
        dataset = lab.load(self.dataset)
        parsed = [parse_defense(one) for one in self.defenses]
        results = lab.train(dataset, self.model, parsed, self.recipe, seeds=self.seeds)
        named = [(lab.seed + seed, row) for seed in range(self.seeds) for row in self.defenses]
        return Pieces(
            trained=tuple(
                Trained(self.published, self.dataset, self.model, row, seed, one.test_images, read_history(one))
                for (seed, row), one in zip(named, results, strict=True)
            )
        )


def read_history(result: "TrainingResult") -> dict[str, tuple[float, ...]]:
    """The figures of every epoch, as the training wrote them."""
    with (result.weights.parent / HISTORY).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: tuple(round(float(row[name]), 5) for row in rows) for name in rows[0] if name != "epoch"}
