"""Who has which images."""

import torch
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.randomness import derive_seed, generator

IID, DIRICHLET, CLASSES = "iid", "dirichlet", "classes"


def check_partition(text: str) -> tuple[str, float]:
    """The kind of a partition and its number, from `iid`, `dirichlet:0.5` or `classes:2`."""
    kind, colon, value = text.partition(":")
    if kind == IID and not colon:
        return kind, 0.0
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if kind == DIRICHLET and 1e-3 <= number <= 1e6:
        return kind, number
    if kind == CLASSES and 1 <= number <= 1e6 and number == int(number):
        return kind, number
    raise GradveilError(f"partition: expected iid, dirichlet:ALPHA such as dirichlet:0.5, or classes:2, got {text!r}")


def partition_indices(labels: Tensor, participants: int, partition: str, *, seed: int) -> list[Tensor]:
    """Split images among participants: for each the sorted indices of its own. Every image is with exactly one of them.

    `iid` deals shuffled images out evenly. `dirichlet:ALPHA` splits every class by fractions from Dirichlet(ALPHA, ...): the
    smaller ALPHA, the more uneven. `classes:K` orders the images by class, cuts them into participants x K pieces and deals K of
    them to each: nobody has many more than K classes (McMahan et al., 2017).
    """
    kind, number = check_partition(partition)
    count = len(labels)
    if participants > count:
        raise GradveilError(f"{count} images for {participants} participants: each needs one at least")
    shuffled = torch.randperm(count, generator=generator(seed, "partition"))
    if kind == IID:
        parts = [shuffled[one::participants] for one in range(participants)]
    elif kind == CLASSES:
        pieces = participants * int(number)
        if pieces > count:
            raise GradveilError(f"{count} images cannot be cut into {participants} x {int(number)} pieces")
        ordered = shuffled[labels[shuffled].argsort(stable=True)]
        cut = torch.tensor_split(ordered, pieces)
        hands = torch.randperm(pieces, generator=generator(seed, "pieces")).view(participants, -1)
        parts = [torch.cat([cut[piece] for piece in hand.tolist()]) for hand in hands]
    else:
        parts = _split_by_dirichlet(labels, shuffled, participants, number, seed)
    empty = [one for one, indices in enumerate(parts) if not len(indices)]
    if empty:
        raise GradveilError(
            f"partition {partition!r} leaves participant {empty[0]} without images; use a larger number, fewer participants "
            "or another seed"
        )
    return [indices.sort().values for indices in parts]


def _split_by_dirichlet(labels: Tensor, shuffled: Tensor, participants: int, alpha: float, seed: int) -> list[Tensor]:
    parts: list[list[Tensor]] = [[] for _ in range(participants)]
    for label in sorted(set(labels.tolist())):
        members = shuffled[labels[shuffled] == label]
        # torch samples Dirichlet fractions from the global stream only; numpy takes a seed.
        fractions = _dirichlet_fractions(participants, alpha, derive_seed(seed, "dirichlet", label))
        ends = (fractions.cumsum(0)[:-1] * len(members)).round().to(torch.int64)
        for one, piece in enumerate(torch.tensor_split(members, ends)):
            parts[one].append(piece)
    return [torch.cat(pieces) for pieces in parts]


def _dirichlet_fractions(participants: int, alpha: float, seed: int) -> Tensor:
    import numpy as np

    return torch.from_numpy(np.random.default_rng(seed).dirichlet([alpha] * participants))
