"""Which images belong to a part: stratified choices that depend on the seed and the labels alone.

Every image gets one hashed number per seed, and each class keeps its lowest ones. The choice is therefore the same on
every machine, and a smaller subset of the same seed lies inside a larger one (up to one image per class).
"""

import torch
from torch import Tensor

from gradveil.datasets.names import Subset
from gradveil.errors import GradveilError
from gradveil.randomness import hashed_uniform

TEST_ONE_IN = 5  # one image in five is kept for testing where a source has no test part of its own


def subset_indices(labels: Tensor, subset: Subset, classes: tuple[str, ...], *, seed: int) -> Tensor:
    """Indices, ascending, of a subset of `labels` (N,) that keeps the balance of the classes to within one image."""
    total, count = len(labels), subset.count(len(labels))
    if count > total:
        raise GradveilError(
            f"subset {subset} asks for {count:,} of {total:,} training images; ask for at most that many"
        )
    sizes = torch.bincount(labels, minlength=len(classes)).tolist()
    quotas = _quotas(sizes, count)
    for name, size, quota in zip(classes, sizes, quotas, strict=True):
        if size and not quota:
            enough = -(-total // min(size for size in sizes if size))
            raise GradveilError(
                f"subset {subset} ({count:,} of {total:,} images) leaves class {name!r} without images; "
                f"[:{enough}] or more keeps every class"
            )
    return _lowest_of_each_class(labels, quotas, seed, "subset")


def split_indices(labels: Tensor, classes: tuple[str, ...], where: str, *, seed: int) -> tuple[Tensor, Tensor]:
    """Training and test indices, ascending: a fifth of every class, but at least one image, is for testing."""
    sizes = torch.bincount(labels, minlength=len(classes)).tolist()
    for name, size in zip(classes, sizes, strict=True):
        if size < 2:
            raise GradveilError(
                f"class {name!r} of {where} has {size} image(s); splitting off a test part needs at least 2"
            )
    test = _lowest_of_each_class(
        labels, [max(1, (size + TEST_ONE_IN // 2) // TEST_ONE_IN) for size in sizes], seed, "split"
    )
    training = torch.ones(len(labels), dtype=torch.bool)
    training[test] = False
    return training.nonzero()[:, 0], test


def in_turn(labels: Tensor) -> Tensor:
    """An order of `labels` (N,) that takes the classes in turn, and keeps the order within each."""
    turns = torch.empty_like(labels)
    for label in sorted(set(labels.tolist())):
        turns[labels == label] = torch.arange(int((labels == label).sum()))
    return torch.argsort(turns * (int(labels.max()) + 1) + labels, stable=True) if len(labels) else labels


def _quotas(sizes: list[int], count: int) -> list[int]:
    # Largest remainders: the quotas add up to `count` exactly, whatever the sizes; ties go to the earlier class.
    total = max(1, sum(sizes))
    quotas = [count * size // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda label: -(count * sizes[label] % total))
    for label in by_remainder[: count - sum(quotas)]:
        quotas[label] += 1
    return quotas


def _lowest_of_each_class(labels: Tensor, quotas: list[int], seed: int, stream: str) -> Tensor:
    draws = hashed_uniform(torch.arange(len(labels)), seed, "datasets", stream)
    order = torch.argsort(draws, stable=True)
    chosen = [order[labels[order] == label][:quota] for label, quota in enumerate(quotas)]
    return torch.cat(chosen).sort().values
