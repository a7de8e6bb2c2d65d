"""What participants without a server agree on before they start."""

import hashlib
from dataclasses import dataclass

from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.gossip.topology import Topology
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.rounds import CHECKPOINT_SECONDS
from gradveil.federated.training import EVALUATIONS
from gradveil.types import Dataset
from gradveil.version import __version__


@dataclass(frozen=True)
class GossipSettings:
    """A training without a server: `plan` on the graph `topology`.

    `curiosity.participant` looks at the first of its neighbours after it that answers. Accuracy is measured `evaluations` times
    on the way. A participant waits `patience` seconds for another one, who may be computing. All keep what they have after
    `checkpoint_seconds` of work. Whoever has these settings computes on `device`; others may have another one.
    """

    plan: FederatedPlan
    topology: Topology
    curiosity: Curiosity | None = None
    evaluations: int = EVALUATIONS
    patience: float = 60.0
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    device: Device = CPU

    def __post_init__(self) -> None:
        participants, curiosity = self.plan.participants, self.curiosity
        if self.topology.participants != participants:
            raise GradveilError(
                f"topology {self.topology.name} has {self.topology.participants} participants, the plan has {participants}"
            )
        if not 1 <= self.patience <= 86_400:
            raise GradveilError(f"a participant waits 1 to 86400 s for another, got {self.patience:g}")
        if curiosity is None:
            return
        if (largest := max(curiosity.sums)) > 1:
            raise GradveilError(
                f"a curious neighbour gets single messages: sums of {largest} do not apply; use sums of 1"
            )
        if curiosity.victims > 1:
            raise GradveilError(f"a curious neighbour looks at one other: expected 1 victim, got {curiosity.victims}")
        curiosity.check(participants=participants, per_round=participants, rounds=self.plan.rounds)

    def present(self, number: int) -> set[int]:
        """Those who compute and send in round `number`."""
        return set(self.plan.chosen_participants(number)) - set(self.plan.dropped_participants(number))

    def fingerprint(self, dataset: Dataset) -> str:
        """The same for everybody who means the same training."""
        parts = (self.plan.to_json(), self.topology.text, repr(self.curiosity), self.evaluations, __version__)
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=16)
        digest.update(dataset.train.labels.numpy().tobytes())
        return digest.hexdigest()
