"""A collaborative training as data: everything that decides its result."""

import json
from dataclasses import asdict, dataclass, replace

import torch

from gradveil.client import Client, FedAvg, parse_client
from gradveil.defenses import Defense, parse_defense
from gradveil.errors import GradveilError
from gradveil.federated.partitions import check_partition
from gradveil.io.typed_json import from_json
from gradveil.leakage.scenario import FEDSGD
from gradveil.randomness import generator, hashed_uniform
from gradveil.schedule import drop_steps, rate_factor

MOST_PARTICIPANTS = 10_000
MOST_ROUNDS = 1_000_000
LARGEST_PLAN = 64 * 2**10


@dataclass(frozen=True)
class FederatedPlan:
    """Who trains what together, and how.

    Every round `per_round` of the `participants` take `batch` of their images each. None means all, for both. Each of them drops
    out with probability `dropout`. What they share is in the units of a gradient. The server makes an SGD step of rate `lr` with
    the mean: for `fedsgd` this is large-batch SGD, for `fedavg` with the same rate it is the mean of the weights. The rate drops
    tenfold at 3/8, 5/8 and 7/8 of the rounds, for local steps too. `augment` crops and mirrors the images first.

    Example:
        FederatedPlan("fashion-mnist-tenth", "lenet", participants=4, rounds=20, batch=2, defense="prune:0.7")
    """

    dataset: str
    model: str
    participants: int = 10
    rounds: int = 100
    defense: str = "none"
    partition: str = "iid"
    client: str = FEDSGD
    batch: int | None = 13
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    per_round: int | None = None
    dropout: float = 0.0
    augment: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for what, value, low, high in (
            ("participants", self.participants, 1, MOST_PARTICIPANTS),
            ("rounds", self.rounds, 1, MOST_ROUNDS),
            ("participants per round", 1 if self.per_round is None else self.per_round, 1, self.participants),
            ("a participant's batch", 1 if self.batch is None else self.batch, 1, 100_000),
            ("seed", self.seed, 0, 2**31 - 1),
        ):
            if not low <= value <= high:
                raise GradveilError(f"{what}: expected {low} to {high}, got {value}")
        if not 0 < self.lr < 1000 or not 0 <= self.momentum < 1 or not 0 <= self.weight_decay < 1000:
            raise GradveilError(
                f"the server needs a rate above 0, a momentum from 0 to below 1 and a weight decay from 0 on, got {self.lr:g}, "
                f"{self.momentum:g} and {self.weight_decay:g}"
            )
        if not 0 <= self.dropout < 1:
            raise GradveilError(f"dropout: expected a probability from 0 to below 1, got {self.dropout:g}")
        parse_client(self.client)
        self.make_defense()
        check_partition(self.partition)

    def make_defense(self) -> Defense:
        """The defense of every participant."""
        return parse_defense(self.defense, files=False)

    def client_in(self, number: int) -> Client:
        """What participants compute in round `number`. The rate of local steps drops as the server's does."""
        client = parse_client(self.client)
        return replace(client, lr=client.lr * self._rate_factor(number)) if isinstance(client, FedAvg) else client

    def rate_in(self, number: int) -> float:
        """The server's rate in round `number`."""
        return self.lr * self._rate_factor(number)

    def _rate_factor(self, number: int) -> float:
        # The first round has the whole rate, however few rounds there are.
        return rate_factor(number, [max(1, drop) for drop in drop_steps(self.rounds)])

    def chosen_participants(self, number: int) -> list[int]:
        """The participants that are asked in round `number`, in order."""
        if self.per_round is None:
            return list(range(self.participants))
        order = torch.randperm(self.participants, generator=generator(self.seed, "participants", number))
        return sorted(order[: self.per_round].tolist())

    def dropped_participants(self, number: int) -> list[int]:
        """Those of the chosen participants of round `number` that drop out."""
        chosen = self.chosen_participants(number)
        fate = hashed_uniform(torch.tensor(chosen), self.seed, "dropout", number)
        return [one for one, value in zip(chosen, fate.tolist(), strict=True) if value < self.dropout]

    def check_foreign(self, *, model: str | None = None, dataset: str | None = None) -> None:
        """Refuse a plan from somebody else that runs code or reads folders, unless the user has named the same."""
        named = (("model", self.model, model), ("dataset", self.dataset, dataset))
        foreign = [(option, asked) for option, asked, given in named if ":" in asked and asked != given]
        if foreign:
            what = " and ".join(f"the {option} {asked!r}" for option, asked in foreign)
            raise GradveilError(
                f"the plan asks for {what}; to allow it, use {' '.join(f'--{o} {a}' for o, a in foreign)}"
            )

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "FederatedPlan":
        """Read what `to_json` wrote; it may come from anyone."""
        try:
            return from_json(cls, text, largest=LARGEST_PLAN)
        except (ValueError, GradveilError) as error:
            raise GradveilError(f"not a plan of a collaborative training: {error}") from error
