"""Several trainings as jobs: one per worker at a time, and one per folder whoever works there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gradveil.defenses import Defense
from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.io.locks import opening_locks
from gradveil.models import Model
from gradveil.parallel import LOCAL, RunJobs, run_jobs, using_one_thread
from gradveil.progress import Progress, silent
from gradveil.training.fit import TrainingResult, train
from gradveil.training.recipe import Recipe
from gradveil.types import Dataset


@dataclass(frozen=True)
class Training:
    """One training: where it is kept, with which defense, and its seed."""

    folder: Path
    defense: Defense
    seed: int

    def __str__(self) -> str:
        return f"training with defense {self.defense}, seed {self.seed}"


def train_all(
    dataset: Dataset,
    model: Model,
    trainings: Sequence[Training],
    *,
    recipe: Recipe | None = None,
    workers: int = 1,
    backend: str = LOCAL,
    jobs: RunJobs | None = None,
    device: Device = CPU,
    progress: Progress = silent,
) -> list[TrainingResult]:
    """Run the trainings, each on one thread, and give their results in the same order.

    What is finished is not done again. A training that another process is at, on whatever machine, is left to it until nothing
    else is left to do.
    """
    alone = workers == 1 and backend == LOCAL
    jobs = jobs or partial(run_jobs, workers=workers, backend=backend)
    found: dict[Path, TrainingResult] = {}
    with (silent if alone else progress)(f"{len(trainings)} trainings", len(trainings), "trainings") as advance:
        for wait in (False, True):
            # Workers may have another current folder.
            left = [
                replace(one, folder=one.folder.absolute()) for one in trainings if one.folder.absolute() not in found
            ]
            work = partial(_train, dataset, model, recipe, device, wait, progress if alone else silent)
            for folder, result in jobs(work, left, describe=str):
                if result is not None:
                    found[folder] = result
                    advance(1)
    return [_as_seen_here(found[one.folder.absolute()], one.folder) for one in trainings]


def _as_seen_here(result: TrainingResult, folder: Path) -> TrainingResult:
    weights, best = folder / result.weights.name, folder / result.best_weights.name
    if not weights.is_file():
        raise GradveilError(f"{weights} is on another machine only; choose an --out that all machines share")
    return replace(result, weights=weights, best_weights=best)


def _train(
    dataset: Dataset,
    model: Model,
    recipe: Recipe | None,
    device: Device,
    wait: bool,
    progress: Progress,
    training: Training,
) -> tuple[Path, TrainingResult | None]:
    """The result, or None where another process is at it and this one should not wait."""
    with opening_locks(training.folder.parent) as locks, using_one_thread():
        if not locks.take(training.folder.name, wait=wait):
            return training.folder, None
        done = train(
            dataset,
            model,
            training.folder,
            recipe=recipe,
            defense=training.defense,
            seed=training.seed,
            device=device,
            progress=progress,
        )
    return training.folder, done
