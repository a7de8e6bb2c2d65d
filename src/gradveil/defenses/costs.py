"""What a defense costs a participant: parameters to send, and time per step."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from gradveil.client import Client, share, trainable_parameters
from gradveil.defenses.base import Defense, NoDefense
from gradveil.devices import CPU
from gradveil.errors import GradveilError
from gradveil.types import Batch, ImageSet, to_unit

# Processor time rather than the wall's: somebody else's work on the same machine is no cost of the defense.
Clock = Callable[[], float]
FEWEST = 3
LONGEST = 15.0  # seconds


@dataclass(frozen=True)
class Cost:
    """`extra_parameters` more than without the defense; medians of the processor's seconds per step with and without it.

    `ratio` holds the quartiles and the median (25%, 50%, 75%) of with / without over `pairs` of neighbouring steps.
    """

    extra_parameters: int
    seconds: float
    seconds_without: float
    ratio: tuple[float, float, float]
    pairs: int


def cost_of(
    defense: Defense,
    model: nn.Module,
    images: ImageSet,
    *,
    client: Client = share,
    repeats: int = 15,
    clock: Clock = time.process_time,
    seed: int = 0,
) -> Cost:
    """What a step on `images` costs with the defense on `model`, from transforming the images to what is shared.

    It is taken where the model is. The `clock` of a process does not count what another device does.

    Steps with and without alternate and take turns in going first, so that whatever else the machine does slows both; the first
    of each does not count. A slow defense gets fewer than `repeats` pairs, at least three.
    """
    if repeats < FEWEST:
        raise GradveilError(f"a cost needs at least {FEWEST} repeats, got {repeats}")
    defended = defense.network(model, seed=seed)
    sides = ((NoDefense(), model), (defense, defended))
    pairs: list[list[float]] = []
    while len(pairs) <= repeats and (len(pairs) <= FEWEST or sum(map(sum, pairs)) < LONGEST):
        pair = [0.0, 0.0]
        for side in (0, 1) if len(pairs) % 2 else (1, 0):
            start = clock()
            _step(*sides[side], images, client, seed=seed + len(pairs))
            pair[side] = clock() - start
        pairs.append(pair)
    without, spent = torch.tensor(pairs[1:], dtype=torch.float64).unbind(1)
    low, middle, high = (spent / without).quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
    return Cost(
        extra_parameters=_parameters(defended) - _parameters(model),
        seconds=float(spent.quantile(0.5)),
        seconds_without=float(without.quantile(0.5)),
        ratio=(low, middle, high),
        pairs=len(without),
    )


def _step(defense: Defense, network: nn.Module, images: ImageSet, client: Client, *, seed: int) -> None:
    seen = defense.images(images.images, seed=seed, indices=torch.arange(len(images)))
    where = next(network.parameters()).device
    shared = defense.share(client, network, Batch(to_unit(seen).to(where), images.learned.to(where)), seed=seed)
    if where.type != CPU.kind:  # what is not read may not be computed yet
        next(iter(shared.values())).sum().item()


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in trainable_parameters(model)[1])
