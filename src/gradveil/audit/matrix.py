"""Run an audit: every cell of its matrix, and the trainings that accuracy needs. What was done before is not done again."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from gradveil.audit.accuracy import Accuracy
from gradveil.audit.claim import claim
from gradveil.audit.notes import RunNotes
from gradveil.audit.perception import Metric, perceptual_distances
from gradveil.audit.plan import TRAINED, AuditPlan
from gradveil.audit.properties import StageProperties, stage_properties
from gradveil.audit.study import Study, read_study
from gradveil.audit.tables import ACCURACIES, PERCEPTION, PROPERTIES
from gradveil.defenses import Defense, NoDefense, parse_defense
from gradveil.errors import GradveilError
from gradveil.io.tensors import content_hash
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.models import untrained
from gradveil.models.weights import ModelCard, load_state, save_weights
from gradveil.naming import slug
from gradveil.parallel import one_thread
from gradveil.progress import Progress, silent
from gradveil.randomness import generator
from gradveil.training import Recipe, Trained, train
from gradveil.training.early import train_steps
from gradveil.training.networks import load_model
from gradveil.types import Dataset, ImageSet
from gradveil.version import __version__


def run_audit(
    plan: AuditPlan,
    dataset: Dataset,
    folder: Path,
    *,
    workers: int = 1,
    metric: Metric | None = None,
    notes: Callable[[tuple[AuditPlan, ...]], RunNotes] | None = None,
    progress: Progress = silent,
) -> Study:
    """Attack training images, which is what participants share gradients of; the test images are the public ones.

    What earlier audits left in the folder stays, and is in the study too. `metric` is a perceptual distance that is measured
    into `lpips.json`. `notes` gives what the folder says of itself, from all of its plans.
    """
    indices = spread_indices(dataset.train, plan.images, seed=plan.seed)
    if plan.weights is not None:
        staged(
            plan, TRAINED, NoDefense(), dataset, folder
        )  # weights that do not fit are refused before anything is written
    for table in (ACCURACIES, PROPERTIES, PERCEPTION):
        table.read(folder)  # one that cannot be added to is refused before hours of work, not after
    plans = claim(plan, folder).plans
    accuracies = [
        Accuracy(defense, seed, trained.accuracy, trained.test_images)
        for defense, seed, trained in _trainings(plan, dataset, folder, progress)
    ]
    records: list[Record] = []
    properties: list[StageProperties] = []
    for stage in plan.stages:
        for defense in plan.defenses:
            network = staged(plan, stage, parse_defense(defense), dataset, folder, progress)
            if defense == UNDEFENDED:
                properties += stage_properties(network, plan.in_words(stage), dataset.train, indices)
            for cell in plan.cells:
                if (cell.stage, cell.defense) == (stage, defense):
                    records += measure(
                        plan.scenario(cell),
                        network,
                        dataset.train,
                        indices,
                        folder,
                        public=dataset.test,
                        workers=workers,
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


def staged(
    plan: AuditPlan, stage: str, defense: Defense, dataset: Dataset, folder: Path, progress: Progress = silent
) -> nn.Module:
    """The network that is attacked: fresh, after some steps with the defense on, trained with it, or the one that was given."""
    if stage == TRAINED and plan.weights is None:
        trained = _train(plan, defense, plan.seed, dataset, folder, progress)
        module, _ = load_model(trained.weights, model=plan.model)
        return module
    if stage == TRAINED:
        assert plan.weights is not None
        module = untrained(plan.model, dataset, seed=plan.seed)
        load_state(module, Path(plan.weights))
        return defense.network(module, seed=plan.seed)
    network = defense.network(untrained(plan.model, dataset, seed=plan.seed), seed=plan.seed)
    if int(stage) == 0:
        return network
    path = folder / "networks" / f"{_key(plan, stage, str(defense), dataset, network)}.safetensors"
    if path.is_file():
        load_state(network, path)
        return network.eval()
    with one_thread():
        train_steps(network, dataset, int(stage), defense=defense, seed=plan.seed)
    card = ModelCard(
        plan.model,
        dataset.train.image_shape,
        dataset.train.classes,
        dataset.name,
        plan.seed,
        0,
        None,
        str(defense),
        __version__,
    )
    save_weights(path, network, card)
    return network


def _key(plan: AuditPlan, stage: str, defense: str, dataset: Dataset, network: nn.Module) -> str:
    digest = hashlib.sha256(json.dumps([__version__, stage, defense, plan.seed]).encode())
    digest.update(content_hash([dataset.train.images, dataset.train.labels, *network.state_dict().values()]))
    return digest.hexdigest()[:32]


def _trainings(
    plan: AuditPlan, dataset: Dataset, folder: Path, progress: Progress
) -> Iterator[tuple[str, int, Trained]]:
    for seed in range(plan.seed, plan.seed + plan.trainings):
        for defense in plan.defenses:
            yield defense, seed, _train(plan, parse_defense(defense), seed, dataset, folder, progress)


def _train(plan: AuditPlan, defense: Defense, seed: int, dataset: Dataset, folder: Path, progress: Progress) -> Trained:
    name = slug(str(defense))
    mark = hashlib.sha256(str(defense).encode()).hexdigest()[:6]
    with one_thread():
        return train(
            dataset,
            plan.model,
            folder / "trained" / f"{name}-{mark}-seed{seed}",
            recipe=Recipe(epochs=plan.epochs),
            defense=defense,
            seed=seed,
            progress=progress,
        )
