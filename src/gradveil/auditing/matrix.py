"""Run an audit: every cell of its matrix, and the trainings that accuracy needs; what was done before is not done again."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.choice import Choice
from gradveil.auditing.claim import CLAIM, claim, read_claim
from gradveil.auditing.doubtful_weights import doubt_weights
from gradveil.auditing.evidence import add_evidence, begin_evidence
from gradveil.auditing.notes import RunNotes
from gradveil.auditing.perception import Metric, perceptual_distances
from gradveil.auditing.plan import AuditPlan, AuditSettings
from gradveil.auditing.power import describe_power
from gradveil.auditing.properties import StageProperties, stage_properties
from gradveil.auditing.study import Study, read_study
from gradveil.auditing.tables import ACCURACIES, PERCEPTION, PROPERTIES, TRIALS
from gradveil.auditing.tuning import TRIALS_FOLDER, choose_settings
from gradveil.defenses import NoDefense
from gradveil.errors import GradveilError
from gradveil.federated.early_rounds import rounds_of
from gradveil.io.locks import locking
from gradveil.leakage.lots import Cell
from gradveil.leakage.measuring import measure_all
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.store import attacked_content
from gradveil.models import untrained_model
from gradveil.models.losses import BinaryCrossEntropy, loss_function
from gradveil.parallel import LOCAL, RunJobs, starting_workers
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
    """Attack the images of the plan's split; those of the other split are the public ones.

    What earlier audits left in the folder stays, and is in the study too. `metric` is a perceptual distance that is measured
    into `lpips.json`. `notes` gives what the folder says of itself, from all of its plans.
    `say` hears what the audit can find, as soon as nothing is refused any more, and which settings attacks were given.
    """
    private, public = dataset.private_and_public(plan.split)
    indices = spread_indices(private, plan.images, seed=plan.seed)
    rounds = rounds_of(plan.threats, dataset, seed=plan.seed, device=plan.device)
    source = NetworkSource(dataset, plan.model, plan.weights, plan.seed, folder, plan.device, rounds)
    doubt = None
    if plan.weights is not None:  # weights that do not fit are refused before anything is written
        doubt = doubt_weights(source.at(plan.every_stage[0]).module, dataset)
    for table in (ACCURACIES, PROPERTIES, PERCEPTION, TRIALS):
        table.read(folder)  # one that cannot be added to is refused before hours of work, not after
    if (folder / CLAIM).exists():
        read_claim(folder)
    content = source.content  # a model that cannot be built is refused before anything is written
    refuse_unreadable_labels(plan, dataset)
    with locking(folder):
        plans = claim(plan.settings(dataset.name), folder).plans
        begin_evidence(folder, content)
    say(describe_power(plan.images, plan.attacks_per_defense, plan.tolerance))
    if doubt is not None:
        say(doubt)
    records: list[Record] = []
    properties: list[StageProperties] = []
    with starting_workers(workers, backend) as jobs:

        def attack(cells: list[Cell], into: Path) -> list[list[Record]]:
            return measure_all(
                cells,
                private,
                into,
                public=public,
                workers=workers,
                backend=backend,
                jobs=jobs,
                progress=progress,
            )

        accuracies = measure_accuracies(plan, source, workers=workers, backend=backend, jobs=jobs, progress=progress)
        for stage in plan.every_stage:
            cells: list[Cell] = []
            choices: list[Choice] = []
            for defense in plan.defenses:  # that none is among them, and first, every plan sees to
                network = source.at(stage, defense, progress=progress).module
                add_evidence(folder, str(stage), str(defense), attacked_content(network, private, public))
                if defense == NoDefense():
                    with plan.device.computing("the size of the model"):
                        here = plan.device.place(network)
                        properties += stage_properties(here, str(stage), private, indices)
                    into = partial(attack, into=folder / TRIALS_FOLDER)
                    choices = choose_settings(plan, dataset, stage, network, indices, into)
                    keep_choices(folder, choices, say)
                for scenario in plan.scenarios(dataset.name, stage, defense, choices):
                    cells.append(Cell(scenario, network, behind(scenario, indices)))
            records += chain.from_iterable(attack(cells, folder))
    perceived = [] if metric is None else perceptual_distances(records, metric)
    with locking(folder):  # another process may add to the same tables
        ACCURACIES.add(folder, accuracies)
        PROPERTIES.add(folder, properties)
        if metric is not None:
            PERCEPTION.add(folder, perceived)
        if notes is not None:
            notes(plans).save(folder)
    return read_study(folder)


def refuse_unreadable_labels(plan: AuditPlan, dataset: Dataset) -> None:
    """Refuse attacks that read labels off gradients that do not show them, before anything is attacked."""
    if not isinstance(loss_function(untrained_model(plan.model, dataset, seed=plan.seed)), BinaryCrossEntropy):
        return
    for scenario in (one for stage in plan.every_stage for one in plan.scenarios(dataset.name, stage, NoDefense())):
        if scenario.batch > 1 and scenario.attack.labels == "read":
            raise GradveilError(
                f"labels of {scenario.batch} images cannot be read off binary cross entropy; set labels of the threat to known "
                "or joint"
            )


def keep_choices(folder: Path, choices: list[Choice], say: Callable[[str], None]) -> None:
    """Write which settings were taken before they are used, and say it."""
    if choices:
        with locking(folder):
            TRIALS.add(folder, choices)
    for one in choices:
        say(one.words)


def measure_accuracies(
    plan: AuditPlan, source: NetworkSource, *, workers: int, backend: str, jobs: RunJobs, progress: Progress
) -> list[Accuracy]:
    """Run the trainings that measure accuracy, together with those that the stages need."""
    asked = [
        source.training(defense, seed)
        for seed in range(plan.seed, plan.seed + plan.trainings)
        for defense in plan.defenses
    ]
    needed = any(stage.unit == "epochs" for stage in plan.every_stage)
    attacked = [source.training(defense, plan.seed) for defense in plan.defenses if needed]
    trainings = {one.folder: one for one in (*asked, *attacked)}
    if not trainings:
        return []
    from gradveil.training.several import train_all  # brings Lightning along

    recipe = Recipe(epochs=plan.epochs)
    done = train_all(
        source.dataset,
        source.model,
        list(trainings.values()),
        recipe=recipe,
        workers=workers,
        backend=backend,
        jobs=jobs,
        device=plan.device,
        progress=progress,
    )
    results = dict(zip(trainings, done, strict=True))
    classes = len(source.dataset.train.classes)
    return [
        Accuracy(str(one.defense), one.seed, results[one.folder].accuracy, results[one.folder].test_images, classes)
        for one in asked
    ]


def behind(scenario: Scenario, indices: list[int]) -> tuple[int, ...]:
    """The images that are attacked, whole batches of them. Batches are drawn at random: participants do not sort by class."""
    if scenario.batch == 1:
        return tuple(indices)
    order = torch.randperm(len(indices), generator=generator(scenario.seed, "batches")).tolist()
    return tuple(indices[place] for place in order[: len(indices) - len(indices) % scenario.batch])


def spread_indices(images: ImageSet, count: int, *, seed: int) -> list[int]:
    """`count` images, the classes in turn, each in a random order: class folders come sorted.

    Where images have several labels, classes of many images go first, and those of a single one last: in small ones an image has
    few others to be told from.
    """
    if count > len(images):
        raise GradveilError(f"{count} images were asked for, there are {len(images)}")
    shuffled = torch.randperm(len(images), generator=generator(seed, "audited images"))
    turns = torch.empty(len(images), dtype=torch.int64)
    for label in range(len(images.classes)):
        members = shuffled[images.labels[shuffled] == label]
        turns[members] = torch.arange(len(members))
    places = torch.arange(len(images.classes))
    alone = torch.zeros(len(places), dtype=torch.bool)
    if images.targets is not None:
        sizes = images.labels.bincount(minlength=len(places))
        places[sizes.argsort(descending=True, stable=True)], alone = places.clone(), sizes == 1

    def place(index: int) -> tuple[bool, int, int]:
        """By turn, and within a turn by class."""
        label = images.labels[index]
        return bool(alone[label]), int(turns[index]), int(places[label])

    return sorted(range(len(images)), key=place)[:count]
