"""Run an audit: every cell of its matrix, and the trainings that accuracy needs; what was done before is not done again."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch

from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.claim import claim
from gradveil.auditing.notes import RunNotes
from gradveil.auditing.perception import Metric, perceptual_distances
from gradveil.auditing.plan import AuditPlan, AuditSettings
from gradveil.auditing.power import describe_power
from gradveil.auditing.properties import StageProperties, stage_properties
from gradveil.auditing.study import Study, read_study
from gradveil.auditing.tables import ACCURACIES, PERCEPTION, PROPERTIES
from gradveil.defenses import NoDefense
from gradveil.errors import GradveilError
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.parallel import LOCAL, starting_workers
from gradveil.progress import Progress, silent
from gradveil.randomness import generator
from gradveil.training import Recipe
from gradveil.training.networks import NetworkSource
from gradveil.types import Dataset, ImageSet


def run_audit(
    plan: AuditPlan,
    dataset: Dataset,
    folder: Path,
    *,
    workers: int = 1,
    backend: str = LOCAL,
    metric: Metric | None = None,
    notes: Callable[[tuple[AuditSettings, ...]], RunNotes] | None = None,
    say: Callable[[str], None] = lambda text: None,
    progress: Progress = silent,
) -> Study:
    """Attack training images, which is what participants share gradients of; the test images are the public ones.

    What earlier audits left in the folder stays, and is in the study too. `metric` is a perceptual distance that is measured
    into `lpips.json`. `notes` gives what the folder says of itself, from all of its plans.
    `say` hears what the audit can find, as soon as nothing is refused any more.
    """
    indices = spread_indices(dataset.train, plan.images, seed=plan.seed)
    source = NetworkSource(dataset, plan.model, plan.weights, plan.seed, folder)
    if plan.weights is not None:
        source.at(plan.stages[0])  # weights that do not fit are refused before anything is written
    for table in (ACCURACIES, PROPERTIES, PERCEPTION):
        table.read(folder)  # one that cannot be added to is refused before hours of work, not after
    plans = claim(plan.settings(dataset.name), folder).plans
    say(describe_power(plan.images, plan.attacks_per_defense, plan.tolerance))
    accuracies = []
    for seed in range(plan.seed, plan.seed + plan.trainings):
        for defense in plan.defenses:
            trained = source.train(defense, Recipe(epochs=plan.epochs), seed, progress=progress)
            accuracies.append(Accuracy(str(defense), seed, trained.accuracy, trained.test_images))
    records: list[Record] = []
    properties: list[StageProperties] = []
    with starting_workers(workers, backend) as jobs:
        for stage, defense in product(plan.stages, plan.defenses):
            network = source.at(stage, defense, progress=progress).module
            if defense == NoDefense():
                properties += stage_properties(network, str(stage), dataset.train, indices)
            for scenario in plan.scenarios(dataset.name, stage, defense):
                records += measure(
                    scenario,
                    network,
                    dataset.train,
                    indices,
                    folder,
                    public=dataset.test,
                    workers=workers,
                    backend=backend,
                    jobs=jobs,
                    progress=progress,
                )
    ACCURACIES.add(folder, accuracies)
    PROPERTIES.add(folder, properties)
    if metric is not None:
        PERCEPTION.add(folder, perceptual_distances(records, metric))
    if notes is not None:
        notes(plans).save(folder)
    return read_study(folder)


def spread_indices(images: ImageSet, count: int, *, seed: int) -> list[int]:
    """`count` images, the classes in turn, each in a random order: class folders come sorted."""
    if count > len(images):
        raise GradveilError(f"{count} images were asked for, there are {len(images)}")
    shuffled = torch.randperm(len(images), generator=generator(seed, "audited images"))
    turns = torch.empty(len(images), dtype=torch.int64)
    for label in range(len(images.classes)):
        members = shuffled[images.labels[shuffled] == label]
        turns[members] = torch.arange(len(members))
    # By turn, and within a turn by class.
    return sorted(range(len(images)), key=lambda index: (int(turns[index]), int(images.labels[index])))[:count]
