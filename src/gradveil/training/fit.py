"""Train a classifier on Lightning; a killed run goes on where it was and ends with the same weights."""

import csv
import json
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import MultiStepLR
from torchmetrics.classification import MulticlassAccuracy

from gradveil.errors import GradveilError
from gradveil.files import write_json, writing
from gradveil.models import untrained
from gradveil.models.weights import ModelCard, save_weights
from gradveil.progress import Advance, Progress, silent
from gradveil.training.batches import plain_loader, training_loader
from gradveil.training.checkpoints import WholeCheckpoints
from gradveil.training.recipe import Recipe
from gradveil.transforms import Policy
from gradveil.types import Dataset
from gradveil.version import __version__


@dataclass(frozen=True)
class Trained:
    """A finished training: test accuracy after the last epoch and of the best one, and where the weights are."""

    accuracy: float
    # Chosen by looking at the test images, hence optimistic; `accuracy` is the one to quote.
    best_accuracy: float
    test_images: int
    epochs: int
    weights: Path
    best_weights: Path

    @property
    def accuracy_se(self) -> float:
        """Standard error that comes from the finite number of test images alone; other seeds add to it."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / self.test_images)


def train(
    dataset: Dataset,
    model: str,
    folder: Path,
    *,
    recipe: Recipe | None = None,
    policy: Policy | None = None,
    seed: int = 0,
    workers: int = 0,
    tensorboard: bool = False,
    progress: Progress = silent,
) -> Trained:
    """Train `model` on `dataset` in `folder`: `last.safetensors`, `best.safetensors`, `history.csv` and what resuming needs.

    Started again in the same folder with the same settings, a finished training is returned as it is, a killed one is finished.
    """
    recipe = recipe or Recipe()
    classes = len(dataset.train.classes)
    network = untrained(model, dataset, seed=seed)
    _claim(folder, dataset, model, recipe, policy, seed)
    card = ModelCard(
        model=model,
        image_shape=dataset.train.image_shape,
        classes=dataset.train.classes,
        dataset=dataset.name,
        seed=seed,
        epochs=0,
        accuracy=None,
        policy=None if policy is None else str(policy),
        gradveil=__version__,
    )
    batches = training_loader(dataset.train, batch_size=recipe.batch_size, seed=seed, policy=policy, workers=workers)
    with _quiet(), progress(f"training {model}", recipe.epochs * len(batches), "steps") as advance:
        keeper = Keeper(folder, network, card, advance)
        trainer = L.Trainer(
            devices=1,
            max_epochs=recipe.epochs,
            default_root_dir=folder,
            plugins=[WholeCheckpoints()],
            callbacks=[keeper],
            logger=_tensorboard_logger(folder) if tensorboard else False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            deterministic=True,
        )
        trainer.fit(
            Classifier(network, recipe, classes),
            batches,
            plain_loader(dataset.test),
            ckpt_path=keeper.checkpoint if keeper.checkpoint.is_file() else None,
            weights_only=True,
        )
    accuracies = [row["accuracy"] for row in keeper.history]
    return Trained(
        accuracy=accuracies[-1],
        best_accuracy=max(accuracies),
        test_images=len(dataset.test),
        epochs=recipe.epochs,
        weights=keeper.last,
        best_weights=keeper.best,
    )


class Classifier(L.LightningModule):
    """Cross entropy under a recipe."""

    def __init__(self, network: nn.Module, recipe: Recipe, classes: int) -> None:
        super().__init__()
        self.network = network
        self.recipe = recipe
        self.test_accuracy = MulticlassAccuracy(classes, average="micro")

    def training_step(self, batch: tuple[Tensor, Tensor], batch_number: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self.network(images), labels)
        self.log("loss", loss.detach(), on_step=False, on_epoch=True, batch_size=len(labels))
        return loss / 2 if self.recipe.halve_loss else loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_number: int) -> None:
        images, labels = batch
        self.test_accuracy.update(self.network(images), labels)
        self.log("accuracy", self.test_accuracy, batch_size=len(labels))

    def configure_optimizers(self) -> Any:
        recipe = self.recipe
        optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.momentum > 0,
        )
        return [optimizer], [MultiStepLR(optimizer, recipe.drops, gamma=0.1)]


class Keeper(Checkpoint):
    """After every epoch: weights, history, and last the checkpoint, so that a kill in between only repeats the epoch."""

    def __init__(self, folder: Path, network: nn.Module, card: ModelCard, advance: Advance) -> None:
        self.network, self.card, self.advance = network, card, advance
        self.checkpoint = folder / "last.ckpt"
        self.last = folder / "last.safetensors"
        self.best = folder / "best.safetensors"
        self.table = folder / "history.csv"
        self.history: list[dict[str, float]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = list(state_dict["history"])

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self.advance(trainer.global_step)

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.advance(1)

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        row = {name: float(trainer.callback_metrics[name]) for name in ("loss", "accuracy")}
        self.history.append({"epoch": epoch, **row})
        card = replace(self.card, epochs=epoch, accuracy=row["accuracy"])
        if row["accuracy"] > max((past["accuracy"] for past in self.history[:-1]), default=-1.0):
            save_weights(self.best, self.network, card)
        save_weights(self.last, self.network, card)
        with writing(self.table) as temporary, temporary.open("w", newline="") as file:
            rows = csv.DictWriter(file, ["epoch", "loss", "accuracy"])
            rows.writeheader()
            rows.writerows(self.history)
        trainer.save_checkpoint(self.checkpoint)


def _claim(folder: Path, dataset: Dataset, model: str, recipe: Recipe, policy: Policy | None, seed: int) -> None:
    """Write down what is trained in `folder`, or refuse when something else already is."""
    settings = {
        "dataset": dataset.name,
        "images": len(dataset.train),
        "model": model,
        "recipe": asdict(recipe),
        "policy": None if policy is None else str(policy),
        "seed": seed,
    }
    claim = folder / "settings.json"
    if claim.is_file():
        try:
            found = json.loads(claim.read_text(encoding="utf-8"))
        except ValueError as error:
            raise GradveilError(f"{claim}: damaged ({error}); remove the folder or choose another --out") from error
        differing = [name for name in settings if not isinstance(found, dict) or found.get(name) != settings[name]]
        if differing:
            raise GradveilError(
                f"{folder} holds a training with another {differing[0]}; remove it or choose another --out"
            )
    else:
        write_json(claim, settings)


def _tensorboard_logger(folder: Path) -> TensorBoardLogger:
    try:
        return TensorBoardLogger(folder, name="tensorboard", version="")
    except ModuleNotFoundError as error:
        raise GradveilError("TensorBoard is not installed: pip install 'gradveil[tensorboard]'") from error


@contextmanager
def _quiet() -> Iterator[None]:
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
