"""Train a classifier on Lightning; a killed run goes on where it was and ends with the same weights."""

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

from gradveil.defenses import Defense, NoDefense, with_expected_batch
from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.io.files import claim, releasing
from gradveil.io.tensors import content_hash
from gradveil.models import Model, model_name, untrained_model
from gradveil.models.weights import ModelCard, save_weights
from gradveil.progress import Advance, Progress, silent
from gradveil.training.accelerator import AnyAccelerator
from gradveil.training.batches import plain_loader, training_loader
from gradveil.training.checkpoints import AtomicCheckpoints, damaged
from gradveil.training.classifier import Classifier
from gradveil.training.history import FIGURES, EpochFigures, write_history
from gradveil.training.recipe import Recipe
from gradveil.types import Dataset

SETTINGS, CHECKPOINT = "settings.json", "last.ckpt"


@dataclass(frozen=True)
class TrainingResult:
    """A finished training: test accuracy after the last epoch and of the best one, every epoch, and where the weights are."""

    accuracy: float
    # Chosen by looking at the test images, hence optimistic; `accuracy` is the one to quote.
    best_accuracy: float
    test_images: int
    epochs: int
    weights: Path
    best_weights: Path
    device: str
    history: tuple[EpochFigures, ...]

    @property
    def accuracy_se(self) -> float:
        """Standard error that comes from the finite number of test images alone; other seeds add to it."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / self.test_images)


def train(
    dataset: Dataset,
    model: Model,
    folder: Path,
    *,
    recipe: Recipe | None = None,
    defense: Defense | None = None,
    seed: int = 0,
    workers: int = 0,
    tensorboard: bool = False,
    device: Device = CPU,
    progress: Progress = silent,
) -> TrainingResult:
    """Train `model` on `dataset` in `folder`: `last.safetensors`, `best.safetensors`, `history.csv` and what resuming needs.

        train(load("fashion-mnist-tenth"), "convnet-16", Path("run"), recipe=Recipe(epochs=5)).accuracy

    `recipe` is the papers' by default. The defense acts as it does at a participant: on the images, the network and the
    gradient of every step, which is computed on `device`. `workers` load images. Started again in the same folder with the same
    settings, a finished training is returned as it is, and a killed one is finished.
    """
    recipe, defense = recipe or Recipe(), defense or NoDefense()
    batches = training_loader(dataset.train, batch_size=recipe.batch_size, seed=seed, defense=defense, workers=workers)
    network = defense.network(untrained_model(model, dataset, seed=seed), seed=seed)
    classes = len(dataset.train.classes)
    dataset.train.check_one_label("a whole training")
    if classes < 2:
        raise GradveilError(
            f"a classifier needs at least two classes, {dataset.name} has {classes}: add another class folder"
        )
    sampled = with_expected_batch(defense, min(recipe.batch_size, len(dataset.train)))
    classifier = Classifier(network, batches, recipe, classes, defense=sampled, seed=seed)
    card = ModelCard.of(model_name(model), dataset, defense=str(defense), seed=seed)
    with (
        releasing(folder / SETTINGS, kept=folder / CHECKPOINT),
        device.computing("--batch-size", "the size of the model"),
        _silencing_lightning(),
        progress(f"training {model_name(model)}", recipe.epochs * len(batches), "steps") as advance,
    ):
        _claim(folder, dataset, model_name(model), recipe, defense, seed, device)
        callback = TrainingProgress(folder, network, card, advance)
        trainer = L.Trainer(
            strategy=SingleDeviceStrategy(device.torch, AnyAccelerator()),
            max_epochs=recipe.epochs,
            default_root_dir=folder,
            plugins=[AtomicCheckpoints()],
            callbacks=[callback],
            logger=_tensorboard_logger(folder) if tensorboard else False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            deterministic=True,
        )
        resumed = callback.checkpoint if callback.checkpoint.is_file() else None
        try:
            trainer.fit(classifier, val_dataloaders=plain_loader(dataset.test), ckpt_path=resumed, weights_only=True)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if resumed is None or callback.started:
                raise
            raise damaged(resumed, f"{type(error).__name__}: {str(error)[:200]}") from error
    if resumed is not None and len(callback.history) != recipe.epochs:
        raise damaged(resumed, f"{len(callback.history)} of {recipe.epochs} epochs")
    accuracies = [row.test_accuracy for row in callback.history]
    return TrainingResult(
        accuracy=accuracies[-1],
        best_accuracy=max(accuracies),
        test_images=len(dataset.test),
        epochs=recipe.epochs,
        weights=callback.last,
        best_weights=callback.best,
        device=device.kind,
        history=tuple(callback.history),
    )


class TrainingProgress(Checkpoint):
    """After every epoch: weights, history, and last the checkpoint, so that a kill in between only repeats the epoch."""

    def __init__(self, folder: Path, network: nn.Module, card: ModelCard, advance: Advance) -> None:
        self.network, self.card, self.advance = network, card, advance
        self.checkpoint = folder / CHECKPOINT
        self.last = folder / "last.safetensors"
        self.best = folder / "best.safetensors"
        self.table = folder / "history.csv"
        self.history: list[EpochFigures] = []
        # Whether the checkpoint, if there is one, has been read.
        self.started = False

    def state_dict(self) -> dict[str, Any]:
        return {"history": [asdict(row) for row in self.history]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = [
            EpochFigures(int(row["epoch"]), *(float(row[name]) for name in FIGURES[1:]))
            for row in state_dict["history"]
        ]

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if len(self.history) != trainer.current_epoch:
            raise ValueError(f"a history of {len(self.history)} epochs after {trainer.current_epoch}")
        self.started = True
        self.advance(trainer.global_step)

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.advance(1)

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        row = EpochFigures(epoch, *(float(trainer.callback_metrics[name]) for name in FIGURES[1:]))
        self.history.append(row)
        card = replace(self.card, epochs=epoch, accuracy=row.test_accuracy)
        if row.test_accuracy > max((past.test_accuracy for past in self.history[:-1]), default=-1.0):
            save_weights(self.best, self.network, card)
        save_weights(self.last, self.network, card)
        write_history(self.table, self.history)
        trainer.save_checkpoint(self.checkpoint)


def _claim(
    folder: Path, dataset: Dataset, model: str, recipe: Recipe, defense: Defense, seed: int, device: Device
) -> None:
    """Write down what is trained in `folder`, or refuse when something else already is."""
    settings = {
        "dataset": dataset.name,
        "images": len(dataset.train),
        # The files behind the name of a folder may have changed.
        "contents of the images": content_hash([dataset.train.images, dataset.train.labels]).hex()[:16],
        "model": model,
        "recipe": asdict(recipe),
        "defense": str(defense),
        "seed": seed,
        "device": device.kind,
    }
    claim(folder / SETTINGS, settings)


def _tensorboard_logger(folder: Path) -> TensorBoardLogger:
    try:
        return TensorBoardLogger(folder, name="tensorboard", version="")
    except ModuleNotFoundError as error:
        raise GradveilError("TensorBoard is not installed: pip install 'gradveil[tensorboard]'") from error


@contextmanager
def _silencing_lightning() -> Iterator[None]:
    """Silence Lightning's remarks on hardware and workers; errors still come through."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        try:
            yield
        finally:
            logger.setLevel(level)
