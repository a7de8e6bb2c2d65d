"""The first rounds of a training by the participants of a threat: how far a network is when the threat attacks it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import nn

from gradveil.client import explaining_errors, format_client
from gradveil.defenses import Defense
from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.federated.participant import PendingUpdates, participants_of
from gradveil.federated.plan import MOST_ROUNDS, FederatedPlan
from gradveil.federated.server import Server
from gradveil.leakage.threat import Clients, Threat
from gradveil.types import Dataset


@dataclass(frozen=True)
class EarlyRounds:
    """What participants do together who train as `clients` say, each on its equal part of the training images.

    The server takes the mean of their weights or, where they share gradients, makes a step of their rate with the mean. Rates do
    not drop yet, and batch norm is at work.

        EarlyRounds(Clients(images=8, participants=10), dataset).take(network, 5, Prune(0.9))
    """

    clients: Clients
    dataset: Dataset
    seed: int = 0
    device: Device = CPU

    def __post_init__(self) -> None:
        least = len(self.dataset.train) // self.clients.together
        if least < self.clients.images:
            raise GradveilError(
                f"{self.clients.together} participants with {self.clients.images} images each cannot train: there are {least} "
                "for each"
            )
        _ = self.plan  # says what is wrong with it

    @property
    def plan(self) -> FederatedPlan:
        """The training as `gradveil federate` has it."""
        return FederatedPlan(
            self.dataset.name,
            model="as given",
            participants=self.clients.together,
            rounds=MOST_ROUNDS,  # rates drop late in a training
            client=format_client(self.clients.client),
            batch=self.clients.images,
            lr=self.clients.rate,
            momentum=0.0,
            weight_decay=0.0,
            augment=self.clients.augment,
            seed=self.seed,
        )

    def take(self, network: nn.Module, rounds: int, defense: Defense) -> None:
        """Take the first `rounds` rounds, with the defense on; changes `network`, which ends on the CPU."""
        plan = self.plan
        people = participants_of(plan, self.dataset.train, defense)
        with self.device.computing("the size of the model"):
            network.to(self.device.torch).train()
            server = Server(plan, network)
            for number in range(rounds):
                with explaining_errors():
                    refused = server.step(number, PendingUpdates(people, network, number))
                if refused:
                    raise GradveilError(
                        f"round {number} of the participants' training failed: {next(iter(refused.values()))}"
                    )
        network.eval().to(CPU.torch)

    def __str__(self) -> str:
        # Who is summed, and how batch norm works while it is attacked, change nothing of the training.
        return str(replace(self.clients, summed=1, participants=self.clients.together, batch_norm="train"))


def rounds_of(threats: Iterable[Threat], dataset: Dataset, *, seed: int, device: Device) -> dict[str, EarlyRounds]:
    """How the participants of threats train, by name, where rounds are named; what cannot be trained is refused."""
    return {one.name: EarlyRounds(one.clients, dataset, seed, device) for one in threats if one.rounds}
