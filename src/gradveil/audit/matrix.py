"""Run an audit: every cell of its matrix, and the trainings that accuracy needs; what was done before is not done again."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gradveil.audit.accuracy import Accuracy
from gradveil.audit.claim import claim
from gradveil.audit.perception import Metric, perceptual_distances
from gradveil.audit.plan import TRAINED, AuditPlan
from gradveil.audit.properties import StageProperties
from gradveil.audit.tables import ACCURACIES, PERCEPTION, PROPERTIES
from gradveil.client import loss_of, share
from gradveil.defenses import Defense, NoDefense, parse_defense
from gradveil.errors import GradveilError
from gradveil.io.tensors import content_hash
from gradveil.leakage.measuring import measure
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.models import untrained_model
from gradveil.models.weights import ModelCard, load_state, save_weights
from gradveil.naming import slug
from gradveil.parallel import using_one_thread
from gradveil.progress import Progress, silent
from gradveil.randomness import generator
from gradveil.training import Recipe, TrainingResult, train
from gradveil.training.early import train_steps
from gradveil.training.networks import load_model
from gradveil.types import Batch, Dataset, ImageSet, to_unit
from gradveil.version import __version__


@dataclass(frozen=True)
class Audit:
    """What an audit found, before anything is said about it."""

    plan: AuditPlan
    records: tuple[Record, ...]
    accuracies: tuple[Accuracy, ...]
    telling: tuple[StageProperties, ...]


def run_audit(
    plan: AuditPlan,
    dataset: Dataset,
    folder: Path,
    *,
    workers: int = 1,
    metric: Metric | None = None,
    progress: Progress = silent,
) -> Audit:
    """Attack training images, which is what participants share gradients of; the test images are the public ones.

    `metric` is a perceptual distance that is measured too, into `lpips.json`. What earlier audits left in the folder stays.
    """
    indices = spread_indices(dataset.train, plan.images, seed=plan.seed)
    if plan.weights is not None:
        staged(
            plan, TRAINED, NoDefense(), dataset, folder
        )  # weights that do not fit are refused before anything is written
    for table in (ACCURACIES, PROPERTIES, PERCEPTION):
        table.read(folder)  # one that cannot be added to is refused before hours of work, not after
    claim(plan, folder)
    accuracies = [
        Accuracy(defense, seed, trained.accuracy, trained.test_images)
        for defense, seed, trained in _trainings(plan, dataset, folder, progress)
    ]
    records: list[Record] = []
    telling: list[StageProperties] = []
    for stage in plan.stages:
        for defense in plan.defenses:
            network = staged(plan, stage, parse_defense(defense), dataset, folder, progress)
            if defense == UNDEFENDED:
                telling += _stage_properties(network, plan.in_words(stage), dataset.train, indices)
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
    audit = Audit(plan, tuple(records), tuple(accuracies), tuple(telling))
    ACCURACIES.add(folder, accuracies)
    PROPERTIES.add(folder, telling)
    if metric is not None:
        PERCEPTION.add(folder, perceptual_distances(records, metric))
    return audit


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
        module = untrained_model(plan.model, dataset, seed=plan.seed)
        load_state(module, Path(plan.weights))
        return defense.network(module, seed=plan.seed)
    network = defense.network(untrained_model(plan.model, dataset, seed=plan.seed), seed=plan.seed)
    if int(stage) == 0:
        return network
    path = folder / "networks" / f"{_key(plan, stage, str(defense), dataset, network)}.safetensors"
    if path.is_file():
        load_state(network, path)
        return network.eval()
    with using_one_thread():
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
) -> Iterator[tuple[str, int, TrainingResult]]:
    for seed in range(plan.seed, plan.seed + plan.trainings):
        for defense in plan.defenses:
            yield defense, seed, _train(plan, parse_defense(defense), seed, dataset, folder, progress)


def _train(
    plan: AuditPlan, defense: Defense, seed: int, dataset: Dataset, folder: Path, progress: Progress
) -> TrainingResult:
    name = slug(str(defense))
    mark = hashlib.sha256(str(defense).encode()).hexdigest()[:6]
    with using_one_thread():
        return train(
            dataset,
            plan.model,
            folder / "trained" / f"{name}-{mark}-seed{seed}",
            recipe=Recipe(epochs=plan.epochs),
            defense=defense,
            seed=seed,
            progress=progress,
        )


def _stage_properties(network: nn.Module, stage: str, images: ImageSet, indices: list[int]) -> list[StageProperties]:
    network.eval()
    found = []
    for index in indices:
        one = images.take([index])
        batch = Batch(to_unit(one.images), one.labels)
        with torch.no_grad():
            loss = float(loss_of(network, batch))
        length = float(_length(list(share(network, batch).values())))
        found.append(StageProperties(stage, index, round(loss, 6), round(length, 6)))
    return found


def _length(tensors: list[Tensor]) -> Tensor:
    return torch.stack([tensor.double().square().sum() for tensor in tensors]).sum().sqrt()
