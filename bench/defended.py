"""What a defense costs in accuracy and what it hides, on a small network: one row of a table."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradveil.defenses import parse_defense
from gradveil.defenses.base import Attacker
from gradveil.defenses.parts import private_part
from gradveil.leakage.measuring import measure
from gradveil.leakage.scenario import UNDEFENDED, ScenarioKey
from gradveil.models import untrained_model
from gradveil.naming import slug
from gradveil.parallel import using_one_thread
from gradveil.progress import bar
from gradveil.training import Recipe, train
from gradveil.training.batches import PoissonBatches
from gradveil.training.stage import Stage
from gradveil.types import Dataset

DATASET = "fashion-mnist-tenth"


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


def row(
    dataset: Dataset,
    case: Case,
    defense: str,
    folder: Path,
    *,
    seeds: Sequence[int],
    images: Sequence[int],
    workers: int = 1,
) -> dict[str, object]:
    """Accuracy after a short training, epsilon where there is one, and what each attacker gets; goes on where it was killed."""
    found: dict[str, object] = {
        "model": case.model,
        "defense": defense,
        **_accuracy(dataset, case, defense, folder, seeds),
    }
    private = private_part(parse_defense(defense))
    if private:
        batches = PoissonBatches(len(dataset.train), case.recipe.batch_size, seed=0)
        found["epsilon"] = private.epsilon(batches.rate, case.recipe.epochs * len(batches))
        found["delta"] = private.delta
    if not images:
        return found
    network = parse_defense(defense).network(untrained_model(case.model, dataset), seed=0)
    attackers: tuple[Attacker, ...] = ("plain",) if defense == UNDEFENDED else ("plain", "adaptive")
    for attacker in attackers:
        scenario = ScenarioKey(
            DATASET, case.model, Stage(), defense, case.attack, case.iterations, 0, attacker=attacker
        )
        records = measure(
            scenario.parse(),
            network,
            dataset.test,
            list(images),
            folder / "attacks",
            public=dataset.train,
            workers=workers,
            progress=bar,
        )
        found[attacker] = {
            "psnr": statistics.fmean(one.psnr_original for one in records),
            "psnr_sd": statistics.stdev(one.psnr_original for one in records),
            "gain": statistics.fmean(one.gain_original for one in records),
            "diverged": sum(one.diverged for one in records),
        }
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
