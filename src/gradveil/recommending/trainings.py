"""Short trainings, which say what a defense costs in accuracy compared with none."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.matrix import spread_indices
from gradveil.defenses import Defense
from gradveil.parallel import RunJobs
from gradveil.progress import Progress
from gradveil.recommending.plan import Level, RecommendPlan
from gradveil.training.networks import NetworkSource
from gradveil.training.recipe import SteadyRecipe
from gradveil.types import Dataset, ImageSet

# Short trainings see at most so many images, and are tested on at most so many.
MOST_TRAIN, MOST_TEST = 4000, 2000
# Small batches: with those of the papers' recipe a network has hardly begun to learn when a short training ends.
# Nor does the rate drop: at a tenth of it, or less, most of so few epochs would change nothing.
SHORT = SteadyRecipe(batch_size=32, lr=0.02)


@dataclass(frozen=True)
class ShortTrainings:
    """Trainings of a plan's model on `dataset`, kept below `folder`: one that was done is not done again."""

    plan: RecommendPlan
    dataset: Dataset
    folder: Path
    workers: int
    backend: str
    jobs: RunJobs
    progress: Progress

    def run(self, level: Level, defenses: Sequence[Defense]) -> list[Accuracy]:
        """As many trainings with every defense as the level asks for, each with its seed."""
        from gradveil.training.several import train_all  # brings Lightning along

        plan = self.plan
        folder = self.folder / "accuracy" / f"{level.epochs}-steady-epochs"
        source = NetworkSource(self.dataset, plan.model, None, plan.seed, folder, plan.device)
        seeds = range(plan.seed, plan.seed + level.trainings)
        trainings = [source.training(defense, seed) for defense in defenses for seed in seeds]
        done = train_all(
            self.dataset,
            plan.model,
            trainings,
            recipe=replace(SHORT, epochs=level.epochs),
            workers=self.workers,
            backend=self.backend,
            jobs=self.jobs,
            device=plan.device,
            progress=self.progress,
        )
        classes = len(self.dataset.train.classes)
        return [
            Accuracy(str(training.defense), training.seed, one.accuracy, one.test_images, classes)
            for training, one in zip(trainings, done, strict=True)
        ]


def shorten(dataset: Dataset, seed: int) -> Dataset:
    """What short trainings see: so many images, the classes in turn."""

    def part(images: ImageSet, most: int) -> ImageSet:
        return images if len(images) <= most else images.take(spread_indices(images, most, seed=seed))

    return Dataset(dataset.name, part(dataset.train, MOST_TRAIN), part(dataset.test, MOST_TEST))
