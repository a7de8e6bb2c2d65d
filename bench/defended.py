"""What a defense costs in accuracy and what it hides, on a small network: the rows of two tables."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.leaks import attack_untrained, attackers_of, figures
from gradveil.defenses import parse_defense
from gradveil.defenses.parts import private_part
from gradveil.naming import slug
from gradveil.parallel import using_one_thread
from gradveil.progress import bar
from gradveil.training import Recipe, train
from gradveil.training.batches import PoissonBatches
from gradveil.types import Dataset


@dataclass(frozen=True)
class Case:
    """A network, how it is trained for about a minute, and the attack on it."""

    model: str
    recipe: Recipe
    attack: str
    iterations: int

    def summary(self) -> dict[str, object]:
        """Its settings."""
        return {
            "epochs": self.recipe.epochs,
            "batch_size": self.recipe.batch_size,
            "lr": self.recipe.lr,
            "attack": self.attack,
            "iterations": self.iterations,
        }


CASES = {
    "lenet": Case("lenet", Recipe(epochs=5, batch_size=16, lr=0.01), "idlg", 100),
    "mlp": Case("mlp", Recipe(epochs=3, batch_size=64, lr=0.05), "fast", 100),
}


def leaks(case: Case, defense: str, images: Sequence[int], *, workers: int = 1) -> dict[str, object]:
    """What each attacker gets on the untrained network; goes on where it was killed."""
    found: dict[str, object] = {"model": case.model, "defense": defense}
    for attacker in attackers_of(defense):
        records = attack_untrained(case.model, defense, attacker, case.attack, case.iterations, images, workers=workers)
        found[attacker] = figures(records)
    return found


def accuracy(dataset: Dataset, case: Case, defense: str, folder: Path, seeds: Sequence[int]) -> dict[str, object]:
    """The test accuracy after a short training, and epsilon where there is one; goes on where it was killed."""
    found = {"model": case.model, "defense": defense, **_accuracy(dataset, case, defense, folder, seeds)}
    private = private_part(parse_defense(defense))
    if private:
        batches = PoissonBatches(len(dataset.train), case.recipe.batch_size, seed=0)
        found["epsilon"] = private.epsilon(batches.rate, case.recipe.epochs * len(batches))
        found["delta"] = private.delta
    return found


def _accuracy(dataset: Dataset, case: Case, defense: str, folder: Path, seeds: Sequence[int]) -> dict[str, object]:
    """The test accuracy of the last epoch and its standard error: over seeds where there are several, else over test images."""
    with using_one_thread():
        trained = [
            train(
                dataset,
                case.model,
                folder / "trained" / slug(case.model, defense, f"seed{seed}"),
                recipe=case.recipe,
                defense=parse_defense(defense),
                seed=seed,
                progress=bar,
            )
            for seed in seeds
        ]
    accuracies = [one.accuracy for one in trained]
    several = len(trained) > 1
    return {
        "accuracy": statistics.fmean(accuracies),
        "accuracy_se": statistics.stdev(accuracies) / len(accuracies) ** 0.5 if several else trained[0].accuracy_se,
        "seeds": len(trained),
    }
