"""What a training without a server ends with."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gradveil.federated.folder import WEIGHTS
from gradveil.federated.gossip.settings import GossipSettings
from gradveil.federated.gossip.topology import Topology
from gradveil.federated.history import HistoryRow, read_history
from gradveil.federated.plan import FederatedPlan
from gradveil.io.files import write_csv

PARTICIPANTS = "participants.csv"


@dataclass(frozen=True)
class PeerResult:
    """Where a participant ended: accuracy of its own weights, and their distance to the mean (root mean square)."""

    participant: int
    images: int
    accuracy: float
    test_images: int
    distance: float


@dataclass(frozen=True)
class GossipResult:
    """A finished training without a server: accuracy of the mean of all weights, the mean itself, and where everybody ended."""

    plan: FederatedPlan
    topology: Topology
    history: tuple[HistoryRow, ...]
    weights: Path
    # Round -> participants who were chosen and dropped out.
    missing: dict[int, tuple[int, ...]]
    peers: tuple[PeerResult, ...]


def write_peer_results(folder: Path, results: Sequence[PeerResult]) -> None:
    """Put `participants.csv` into a run folder."""
    write_csv(folder / PARTICIPANTS, [field.name for field in fields(PeerResult)], map(asdict, results))


def read_result(settings: GossipSettings, folder: Path) -> GossipResult:
    """The result of a training that ended in `folder`."""
    plan = settings.plan
    dropped = {number: tuple(plan.dropped_participants(number)) for number in range(plan.rounds if plan.dropout else 0)}
    with (folder / PARTICIPANTS).open(newline="") as file:
        peers = [
            PeerResult(
                int(row["participant"]),
                int(row["images"]),
                float(row["accuracy"]),
                int(row["test_images"]),
                float(row["distance"]),
            )
            for row in csv.DictReader(file)
        ]
    return GossipResult(
        plan,
        settings.topology,
        tuple(read_history(folder)),
        folder / WEIGHTS,
        {number: absent for number, absent in dropped.items() if absent},
        tuple(peers),
    )
