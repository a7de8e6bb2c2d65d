"""What participants without a server agree on before they start."""

import hashlib
from dataclasses import dataclass

from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.gossip.topology import Topology
from gradveil.federated.plan import FederatedPlan
from gradveil.types import Dataset
from gradveil.version import __version__


@dataclass(frozen=True)
class Terms:
    """What all participants have to agree on, and after how many seconds of work they keep what they have."""

    plan: FederatedPlan
    topology: Topology
    curiosity: Curiosity | None
    evaluations: int
    checkpoint_seconds: float

    def __post_init__(self) -> None:
        if self.topology.participants != self.plan.participants:
            raise GradveilError(
                f"topology {self.topology.name} has {self.topology.participants} participants, "
                f"the plan has {self.plan.participants}"
            )
        if self.curiosity is None:
            return
        if max(self.curiosity.sums) > 1:
            raise GradveilError(
                f"a curious neighbour gets every message by itself, so sums of {max(self.curiosity.sums)} do not apply; "
                "sums of 1 would do"
            )
        if self.curiosity.victims > 1:
            raise GradveilError(
                f"a curious neighbour looks at one other, {self.curiosity.victims} victims do not apply; 1 would do"
            )
        everybody = self.plan.participants
        self.curiosity.check(participants=everybody, per_round=everybody, rounds=self.plan.rounds)

    def present(self, number: int) -> set[int]:
        """Those who compute and send in round `number`."""
        return set(self.plan.chosen(number)) - set(self.plan.dropped(number))

    def fingerprint(self, dataset: Dataset) -> str:
        """The same for everybody who means the same training."""
        said = (self.plan.to_json(), self.topology.text, repr(self.curiosity), self.evaluations, __version__)
        digest = hashlib.blake2b(repr(said).encode(), digest_size=16)
        digest.update(dataset.train.labels.numpy().tobytes())
        return digest.hexdigest()
