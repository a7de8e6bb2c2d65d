"""Somebody's own Lightning script: a module, a data module, a trainer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from gradveil.errors import GradveilError

COUNT, SIZE = 40, 10
# Lightning itself pins memory, turns off shuffling and uses what torch has renamed.
QUIET = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*(LeafSpec|pin_memory|shuffling).*"),
]


class Small(L.LightningModule):
    """Somebody's own module; it keeps what it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.ReLU())
            self.head = nn.Linear(12, 10)
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(images / 255))
        return logits

    def training_step(self, batch: list[Tensor], number: int) -> Any:
        self.seen.append(batch[0].clone())
        return F.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], number: int) -> None:
        self.validated = batch[0].clone()
        self.outputs = self(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Data(L.LightningDataModule):
    def __init__(self, images: Tensor, labels: Tensor, **settings: Any) -> None:
        super().__init__()
        self.dataset, self.settings = TensorDataset(images, labels), settings

    def setup(self, stage: str) -> None:
        self.ready = stage

    def train_dataloader(self) -> Any:
        assert self.ready
        return DataLoader(self.dataset, **{"batch_size": SIZE, **self.settings})

    def val_dataloader(self) -> Any:
        return DataLoader(self.dataset, batch_size=COUNT)


def fit(
    data: L.LightningDataModule,
    *callbacks: L.Callback,
    module: Small | None = None,
    epochs: int = 2,
    resume: Path | None = None,
    **settings: Any,
) -> tuple[Small, L.Trainer]:
    module = module or Small()
    trainer = L.Trainer(
        max_epochs=epochs,
        callbacks=list(callbacks),
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **settings,
    )
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    return module, trainer


def same(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][name], states[1][name]) for name in states[0]
    )


def check_refused(data: Data, attempt: Callable[[Data], object], words: str) -> None:
    """The attempt is answered with one line that has these words."""
    with pytest.raises(GradveilError, match=words) as error:
        attempt(data)
    assert "\n" not in str(error.value)
