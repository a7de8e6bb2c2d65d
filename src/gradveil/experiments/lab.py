"""Where experiments run: the folder, the data, the device and the workers; what was trained or attacked is kept and shared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from gradveil.defenses import Defense, NoDefense
from gradveil.devices import CPU, Device
from gradveil.experiments.records import PUBLISHED_SCORE
from gradveil.leakage.lots import Cell
from gradveil.leakage.measuring import measure_all
from gradveil.leakage.records import Record
from gradveil.models import untrained_model
from gradveil.naming import digest_of, slug
from gradveil.parallel import LOCAL, RunJobs
from gradveil.progress import Progress, silent
from gradveil.scores import Scorer
from gradveil.training import Recipe
from gradveil.training.networks import NetworkSource
from gradveil.training.stage import Stage
from gradveil.types import Dataset

if TYPE_CHECKING:
    from gradveil.training import TrainingResult


@dataclass(frozen=True)
class Lab:
    """What every part of every experiment is given.

    `load` gives a dataset by its name. Below `folder` lie trainings, attacks and scores, shared by all experiments: what one has
    made, another does not make again, and a killed run goes on.
    """

    folder: Path
    load: Callable[[str], Dataset]
    seed: int = 0
    device: Device = CPU
    workers: int = 1
    backend: str = LOCAL
    jobs: RunJobs | None = None
    progress: Progress = silent

    def train(
        self, dataset: Dataset, model: str, defenses: Sequence[Defense], recipe: Recipe, *, seeds: int = 1
    ) -> "list[TrainingResult]":
        """Trainings with each of the defenses on, seed by seed."""
        from gradveil.training.several import train_all  # brings Lightning along

        source = self._source(dataset, model, recipe)
        trainings = [source.training(one, seed) for seed in range(self.seed, self.seed + seeds) for one in defenses]
        return train_all(
            dataset,
            model,
            trainings,
            recipe=recipe,
            workers=self.workers,
            backend=self.backend,
            jobs=self.jobs,
            device=self.device,
            progress=self.progress,
        )

    def trained(self, dataset: Dataset, model: str, defense: Defense, result: "TrainingResult") -> nn.Module:
        """The network of a training, with what the defense adds to it."""
        return NetworkSource(dataset, model, result.weights, self.seed).at(Stage("weights"), defense).module

    def early(self, dataset: Dataset, model: str, defense: Defense, steps: int) -> nn.Module:
        """The network after so many training steps with the defense on."""
        source = NetworkSource(dataset, model, None, self.seed, self.folder, self.device)
        return source.at(Stage("steps", steps), defense).module

    def attack(self, cells: Sequence[Cell], dataset: Dataset) -> list[list[Record]]:
        """Attack test images, as the papers do; the training images are public."""
        return measure_all(
            cells,
            dataset.test,
            self.folder,
            public=dataset.train,
            workers=self.workers,
            backend=self.backend,
            jobs=self.jobs,
            progress=self.progress,
        )

    def scorer(
        self,
        dataset: Dataset,
        model: str,
        recipe: Recipe,
        *,
        images: int,
        points: int | None,
        score: str = PUBLISHED_SCORE,
        batches: int = 1,
        batch_size: int = 10,
    ) -> Scorer:
        """A privacy score on a network that was trained without a defense."""
        (trained,) = self.train(dataset, model, [NoDefense()], recipe)
        network = self.trained(dataset, model, NoDefense(), trained)
        fresh = untrained_model(model, dataset, seed=self.seed)
        return Scorer(
            network,
            fresh,
            dataset.test,
            images=images,
            batches=batches,
            batch_size=batch_size,
            points=points,
            score=score,
            seed=self.seed,
            device=self.device,
        )

    def _source(self, dataset: Dataset, model: str, recipe: Recipe) -> NetworkSource:
        folder = self.folder / slug(dataset.name, model, f"{recipe.epochs}epochs", digest_of(recipe))
        return NetworkSource(dataset, model, None, self.seed, folder, self.device)
