"""The part of a defense that acts on the images."""

import copy
import functools
from collections.abc import Iterator
from typing import Any

import lightning as L
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler

from gradveil.defenses import Defense
from gradveil.defenses.augment import PolicyDefense
from gradveil.defenses.parts import acts, needs_poisson, parts
from gradveil.errors import GradveilError
from gradveil.lightning.callback import DefenseCallback
from gradveil.lightning.checks import MARK, DataDefense, check_callbacks, image_parts, usable_defense
from gradveil.randomness import derive_seed
from gradveil.training.batches import PoissonBatches, epoch_of
from gradveil.transforms import Policy, PolicyDataset

# The settings of a loader besides its dataset and how it is batched.
_LOADER_SETTINGS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "pin_memory_device",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


def DefendedData(
    datamodule: L.LightningDataModule, defense: Defense | str, seed: int = 0, *, key: str = "image"
) -> L.LightningDataModule:
    """A copy of `datamodule` whose training images go through the defense's policy; everything else of it stays as it is.

        Trainer(...).fit(module, datamodule=DefendedData(data, "3-1-7+43-18-18"))

    Its training loaders get a `PolicyDataset` around their dataset. Items are images, tuples that start with one, or dicts that
    hold it under `key`. Images are uint8 or floats in [0, 1], so before any Normalize. The draw is a function of (seed, epoch,
    index); the trainer sets the epoch.

    For dp-sgd images are sampled, every one by itself. So batches differ in size; the loader's batch size is the mean.
    """
    if not isinstance(datamodule, L.LightningDataModule):
        raise GradveilError(f"expected a LightningDataModule, got {type(datamodule).__name__}: use its from_datasets")
    guard = _Guard(usable_defense(defense), seed, key)
    defended = copy.copy(datamodule)
    theirs = defended.train_dataloader

    # A method of the copy and no wrapper around it: Lightning looks which hooks a data module has, and a wrapper has them all.
    @functools.wraps(theirs)
    def train_dataloader() -> object:
        loaders = theirs()
        guard.reset(defended.trainer)
        return guard.defend(loaders)

    defended.train_dataloader = train_dataloader  # type: ignore[method-assign]
    setattr(defended, MARK, guard.data)
    return defended


class _Guard(L.Callback):
    """Puts policies around datasets, draws batches where the defense asks for it, and tells both the epoch."""

    def __init__(self, defense: Defense, seed: int, key: str) -> None:
        self.data, self.seed, self.key = DataDefense(defense), seed, key
        self.policies = _policies(defense)
        self.datasets: list[PolicyDataset] = []
        self.epoch = 0

    def reset(self, trainer: L.Trainer | None) -> None:
        """Before loaders are made; without a trainer they are not for training."""
        self.datasets = []
        if trainer is None:
            return
        check_callbacks(trainer, self.data.defense, DefenseCallback)
        self.epoch = epoch_of(trainer)
        callbacks: list[L.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        if self not in callbacks:
            callbacks.append(self)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.epoch = trainer.current_epoch
        for dataset in self.datasets:
            dataset.set_epoch(self.epoch)
        if self.data.batches is not None:
            self.data.batches.set_epoch(self.epoch)

    def defend(self, loaders: object) -> object:
        """The same loader, or list or dict of loaders, with defended datasets."""
        if needs_poisson(self.data.defense) and type(loaders) is not DataLoader:
            raise GradveilError(f"dp-sgd: expected one DataLoader from train_dataloader, got {type(loaders).__name__}")
        if isinstance(loaders, (list, tuple)):
            return [self.defend(one) for one in loaders]
        if isinstance(loaders, dict):
            return {name: self.defend(one) for name, one in loaders.items()}
        if type(loaders) is not DataLoader:
            raise GradveilError(f"train_dataloader: expected a DataLoader, got {type(loaders).__name__}")
        return self._defend_loader(loaders)

    def _defend_loader(self, loader: "DataLoader[object]") -> "DataLoader[object]":
        if isinstance(loader.dataset, IterableDataset):
            raise GradveilError("an iterable dataset has no indices to draw by: use a PolicyTransform inside it")
        if loader.batch_sampler is None:
            raise GradveilError("a loader without batch_size gives whole batches: use a PolicyTransform in its dataset")
        kept = {name: getattr(loader, name) for name in _LOADER_SETTINGS}
        dataset = self._defend_dataset(loader.dataset)
        if needs_poisson(self.data.defense):
            return DataLoader(dataset, batch_sampler=self._poisson_sampler(loader), **kept)
        # Made anew inside the hook and not changed in place: Lightning remembers how loaders were made, to make them again.
        if loader.batch_size is None:
            return DataLoader(dataset, batch_sampler=loader.batch_sampler, **kept)
        return DataLoader(dataset, loader.batch_size, sampler=loader.sampler, drop_last=loader.drop_last, **kept)

    def _poisson_sampler(self, loader: "DataLoader[object]") -> "PoissonSampler":
        shuffled = type(loader.sampler) is RandomSampler and not loader.sampler.replacement
        plain = type(loader.sampler) is SequentialSampler or shuffled
        if loader.batch_size is None or not plain:
            sampler = loader.batch_sampler if loader.batch_size is None else loader.sampler
            raise GradveilError(f"dp-sgd: expected a loader with a batch_size, got one with {type(sampler).__name__}")
        count = len(loader.dataset)  # type: ignore[arg-type]
        self.data.batches = PoissonBatches(count, loader.batch_size, self.seed)
        self.data.batches.set_epoch(self.epoch)
        return PoissonSampler(self.data.batches)

    def _defend_dataset(self, dataset: Any) -> Any:
        for number, policy in enumerate(self.policies):
            # As in a chain: the first one draws as it would alone.
            seed = derive_seed(self.seed, "chain", number) if number else self.seed
            dataset = PolicyDataset(dataset, policy, seed, key=self.key)
            dataset.set_epoch(self.epoch)
            self.datasets.append(dataset)
        return dataset


class PoissonSampler(Sampler[list[int]]):
    """Batches that are drawn image by image. Where none is drawn the first image stands in, which the callback leaves out."""

    def __init__(self, batches: PoissonBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        for _, indices in self.batches:
            yield indices.tolist() or [0]


def _policies(defense: Defense) -> list[Policy]:
    found = []
    for part in parts(defense):
        if isinstance(part, PolicyDefense):
            found.append(part.policy)
        elif acts(part, "images"):
            raise GradveilError(f"{part} is no policy, and only policies go around a dataset")
    if not image_parts(defense):
        raise GradveilError(f"{defense} leaves the images as they are: use DefenseCallback({str(defense)!r}) alone")
    return found
