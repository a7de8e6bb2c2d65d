"""What defenses cost, timed by a clock that the tests hold."""

import itertools
import json
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from gradveil.client import FedAvg
from gradveil.defenses import Defense, Precode, parse_defense
from gradveil.defenses.costs import LONGEST, cost_of
from gradveil.errors import GradveilError
from gradveil.models import build
from gradveil.types import Dataset


class Slow(Defense):
    """Takes so much longer, by the clock it is given."""

    def __init__(self, clock: "Clock", seconds: Iterator[float]) -> None:
        self.clock, self.seconds, self.at = clock, seconds, list[float]()

    def images(self, images: Tensor, *, seed: int, indices: Tensor) -> Tensor:
        self.at.append(self.clock.now)
        self.clock.now += next(self.seconds)
        return images


class Clock:
    """Goes on by 1 whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_ratios_are_of_neighbouring_steps(fashion: Dataset) -> None:
    clock = Clock()
    # A plain step takes 1 by this clock, one with the defense that much more; the first pair does not count.
    slow = Slow(clock, iter([100.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
    cost = cost_of(slow, build("mlp-16", (1, 28, 28), 10), fashion.train.take(range(2)), repeats=3, clock=clock)
    assert (cost.seconds, cost.seconds_without, cost.ratio, cost.pairs) == (3.0, 1.0, (2.5, 3.0, 3.5), 3)
    # They take turns in going first; in a fixed order there would be 4 looks between any two steps with the defense.
    assert cost.extra_parameters == 0
    gaps = [later - earlier for earlier, later in itertools.pairwise(slow.at)]
    assert gaps == [100 + 6, 1 + 2, 2 + 6]


def test_a_slow_defense_gets_fewer_pairs(fashion: Dataset) -> None:
    clock = Clock()
    slow = Slow(clock, itertools.repeat(LONGEST))
    cost = cost_of(slow, build("mlp-16", (1, 28, 28), 10), fashion.train.take(range(2)), repeats=50, clock=clock)
    assert cost.pairs == 3
    with pytest.raises(GradveilError, match="at least 3"):
        cost_of(slow, build("mlp-16", (1, 28, 28), 10), fashion.train.take(range(2)), repeats=2)


@pytest.mark.parametrize("client", ["fedsgd", "fedavg"])
def test_parameters_are_counted(fashion: Dataset, client: str) -> None:
    model = build("mlp-16", (1, 28, 28), 10)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    images = fashion.train.take(range(2))
    clients = {"fedavg": {"client": FedAvg()}}.get(client, {})
    cost = cost_of(Precode(k=8), model, images, repeats=3, **clients)
    assert cost.extra_parameters == (16 * 16 + 16) + (8 * 16 + 16)
    assert cost.seconds > 0
    assert cost_of(parse_defense("3-1-7 | prune:0.5"), model, images, repeats=3).extra_parameters == 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert json.dumps(cost.ratio)
