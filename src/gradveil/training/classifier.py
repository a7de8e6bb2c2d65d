"""A network that learns under a recipe and behind a defense, as Lightning sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import lightning as L
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from gradveil.client import freezing_statistics, gradient, logits_and_loss, trainable_parameters
from gradveil.defenses import Defense
from gradveil.defenses.parts import acts
from gradveil.errors import GradveilError
from gradveil.models.stochastic import drawing, normal_source
from gradveil.randomness import derive_seed, generator, seeding_torch
from gradveil.training.batches import Batches, epoch_of
from gradveil.training.recipe import Recipe
from gradveil.training.steps import sgd
from gradveil.types import Batch


class Classifier(L.LightningModule):
    """Cross entropy, and what layers add to it; every step takes the gradient that the participant would share.

    What a step draws at random is a function of (seed, step), so that a killed training can go on.
    """

    def __init__(
        self,
        network: nn.Module,
        batches: DataLoader[tuple[Tensor, Tensor]],
        recipe: Recipe,
        classes: int,
        *,
        defense: Defense,
        seed: int,
    ) -> None:
        super().__init__()
        self.network, self.batches, self.recipe = network, batches, recipe
        self.defense, self.seed = defense, seed
        # Such a defense computes the gradient itself; others change the finished one, or nothing of it.
        self.computes_gradient = acts(defense, "client")
        self.changes_gradient = acts(defense, "gradients")
        if self.computes_gradient and recipe.halve_loss:
            raise GradveilError(f"{defense} computes its own gradient, of the whole loss: train without halving it")
        self.training_accuracy = MulticlassAccuracy(classes, average="micro")
        self.test_accuracy = MulticlassAccuracy(classes, average="micro")

    def train_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        assert isinstance(self.batches.sampler, Batches)
        self.batches.sampler.set_epoch(epoch_of(self.trainer))
        return self.batches

    def training_step(self, batch: tuple[Tensor, Tensor], batch_number: int) -> Tensor:
        images, labels = batch
        self.batch = Batch(images, labels)
        if self.computes_gradient:
            return self._loss_for_history()
        with self._drawing("step", self.global_step):
            logits, loss = logits_and_loss(self.network, self.batch)
        self._log("training", logits, loss, self.batch.labels)
        return loss / 2 if self.recipe.halve_loss else loss

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        seed = derive_seed(self.seed, "step", self.global_step)
        if self.computes_gradient:
            with self._drawing("step", self.global_step):
                shared = self.defense.share(gradient, self.network, self.batch, seed=seed)
        else:
            loss.backward(*args, **kwargs)  # type: ignore[no-untyped-call]
            if not self.changes_gradient:
                return
            named = zip(*trainable_parameters(self.network), strict=True)
            found = {name: torch.zeros_like(one) if one.grad is None else one.grad for name, one in named}
            shared = self.defense.gradients(found, seed=seed)
        for name, parameter in zip(*trainable_parameters(self.network), strict=True):
            parameter.grad = shared[name].detach()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_number: int) -> None:
        images, labels = batch
        with self._drawing("test", batch_number):
            logits, loss = logits_and_loss(self.network, Batch(images, labels))
        self._log("test", logits, loss, labels)

    def configure_optimizers(self) -> Any:
        recipe, parameters = self.recipe, self.network.parameters()
        optimizer = sgd(parameters, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
        return [optimizer], [MultiStepLR(optimizer, self.recipe.drops, gamma=0.1)]

    def _loss_for_history(self) -> Tensor:
        """The loss for the history alone: `backward` goes through the batch again, in the defense's own way."""
        if not len(self.batch.labels):
            return torch.zeros(())
        with torch.no_grad(), freezing_statistics(self.network), self._drawing("step", self.global_step):
            logits, loss = logits_and_loss(self.network, self.batch)
        self._log("training", logits, loss, self.batch.labels)
        return loss

    def _log(self, what: Literal["training", "test"], logits: Tensor, loss: Tensor, labels: Tensor) -> None:
        """Into the epoch's means; those of a loss are over images."""
        accuracy = self.training_accuracy if what == "training" else self.test_accuracy
        accuracy.update(logits.detach(), labels)
        figures: dict[str, Tensor | Metric] = {f"{what}_loss": loss.detach(), f"{what}_accuracy": accuracy}
        self.log_dict(figures, on_step=False, on_epoch=True, batch_size=len(labels))

    @contextmanager
    def _drawing(self, *path: str | int) -> Iterator[None]:
        draws = normal_source(generator(self.seed, "draws", *path))
        with drawing(self.network, draws), seeding_torch(derive_seed(self.seed, "layers", *path)):
            yield
