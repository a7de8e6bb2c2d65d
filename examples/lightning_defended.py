"""An ordinary Lightning script; two lines protect it.

usage: python examples/lightning_defended.py

Every image goes through the policy 3-1-7+43-18-18 before the network sees it, and nine tenths of every gradient are set to
zero before the step that would share it. Takes some ten seconds on one core.
"""

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from gradveil.datasets import load
from gradveil.lightning import DefendedData, DefenseCallback

DEFENSE = "3-1-7+43-18-18 | prune:0.9"


class Clothes(L.LightningDataModule):
    """6,000 training and 1,000 test images of Fashion-MNIST, uint8."""

    def setup(self, stage: str) -> None:
        dataset = load("fashion-mnist-tenth")
        self.train = TensorDataset(dataset.train.images, dataset.train.labels)
        self.test = TensorDataset(dataset.test.images, dataset.test.labels)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, batch_size=64, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.test, batch_size=500)


class Classifier(L.LightningModule):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 10),
        )

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        images, labels = batch
        return F.cross_entropy(self.net(images / 255), labels)

    def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
        images, labels = batch
        self.log("accuracy", (self.net(images / 255).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main() -> None:
    """Train and say how well it went."""
    L.seed_everything(0)
    data = Clothes()
    data = DefendedData(data, DEFENSE)  # protected: the images
    trainer = L.Trainer(
        max_epochs=2,
        callbacks=[DefenseCallback(DEFENSE)],  # protected: the gradients
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(Classifier(), datamodule=data)
    print(f"test accuracy {float(trainer.callback_metrics['accuracy']):.1%}")


if __name__ == "__main__":
    main()
