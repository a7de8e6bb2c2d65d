"""Collaborative training without a server: everybody talks with its neighbours, here or on many machines."""

import time
from dataclasses import dataclass
from pathlib import Path

from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.folder import claiming
from gradveil.federated.gossip.group import NEWS_SECONDS, START_SECONDS, Group, store_at
from gradveil.federated.gossip.nursery import MOST_HERE, run_local_peers
from gradveil.federated.gossip.peer import Peer
from gradveil.federated.gossip.standings import Standing, read_standings
from gradveil.federated.gossip.terms import Terms
from gradveil.federated.gossip.topology import Topology
from gradveil.federated.history import HistoryRow, read_history
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.rounds import CHECKPOINT_SECONDS
from gradveil.parallel import using_one_thread
from gradveil.progress import Progress, silent
from gradveil.types import Dataset

PATIENCE = 60.0


@dataclass(frozen=True)
class GossipResult:
    """A finished training without a server: accuracy of the mean of all weights, the mean itself, and where everybody ended."""

    plan: FederatedPlan
    topology: Topology
    history: tuple[HistoryRow, ...]
    weights: Path
    # Round -> participants who were chosen and dropped out.
    missing: dict[int, tuple[int, ...]]
    standings: tuple[Standing, ...]


def gossip(
    plan: FederatedPlan,
    dataset: Dataset,
    folder: Path,
    topology: Topology,
    *,
    curiosity: Curiosity | None = None,
    evaluations: int = 20,
    patience: float = PATIENCE,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress = silent,
) -> GossipResult:
    """Train as planned in `folder` with one process per participant on this machine; started again, it goes on.

    In `folder` appear `history.csv` and `last.safetensors` (both of the mean of all weights), `participants.csv`, `log.txt`,
    `recorded/`, and `checkpoints/` for resuming. `curiosity.participant` looks at the first of its neighbours after it that
    answers. `patience` is how many seconds a participant waits for another one, who may be computing.
    """
    terms = Terms(plan, topology, curiosity, evaluations, checkpoint_seconds)
    _check_patience(patience)
    if plan.participants > MOST_HERE:
        raise GradveilError(f"one machine runs at most {MOST_HERE} participants at a time, got {plan.participants}")
    with (
        claiming(folder, plan, curiosity, topology.text),
        progress(_title(plan), plan.rounds, "steps") as advance,
    ):
        run_local_peers(terms, dataset, folder, patience, advance)
    return _result(terms, folder)


def join(
    plan: FederatedPlan,
    dataset: Dataset,
    folder: Path,
    topology: Topology,
    *,
    rank: int,
    rendezvous: str,
    curiosity: Curiosity | None = None,
    evaluations: int = 20,
    patience: float = PATIENCE,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    progress: Progress = silent,
) -> GossipResult | None:
    """Take part in the same training as participant `rank`, one of many machines; who is 0 gets the result.

    `rendezvous` is HOST:PORT of participant 0, where all meet. Everybody has a folder of its own, or all the same one.
    """
    terms = Terms(plan, topology, curiosity, evaluations, checkpoint_seconds)
    _check_patience(patience)
    if not 0 <= rank < plan.participants:
        raise GradveilError(f"participant {rank}: 0 to {plan.participants - 1} would do")
    host, port = _address(rendezvous)
    with claiming(folder, plan, curiosity, topology.text):
        try:
            store = store_at(host, port, keep=rank == 0)
        except RuntimeError as error:
            tip = "a free port of this machine" if rank == 0 else "the address of participant 0"
            raise GradveilError(f"no meeting at {rendezvous} within {START_SECONDS:g} s; {tip} would do") from error
        group = Group(rank, plan.participants, store, patience)
        try:
            with progress(_title(plan), plan.rounds, "steps") as advance, using_one_thread(), group.joining():
                Peer(terms, dataset, folder, group).train(advance)
        except GradveilError:
            if rank == 0:  # the news of who is gone are kept here: the others have to read them first
                time.sleep(2 * NEWS_SECONDS)
            raise
    return _result(terms, folder) if rank == 0 else None


def _title(plan: FederatedPlan) -> str:
    return f"training {plan.model} with {plan.participants} participants and no server"


def _check_patience(patience: float) -> None:
    if not 1 <= patience <= 86_400:
        raise GradveilError(f"a participant waits 1 to 86400 s for another, got {patience:g}")


def _address(rendezvous: str) -> tuple[str, int]:
    host, _, port = rendezvous.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise GradveilError(f"rendezvous {rendezvous!r}: HOST:PORT would do, such as 192.168.0.10:29500")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _result(terms: Terms, folder: Path) -> GossipResult:
    plan = terms.plan
    history = tuple(read_history(folder))
    missing = {number: tuple(plan.dropped(number)) for number in range(plan.rounds if plan.dropout else 0)}
    missing = {number: dropped for number, dropped in missing.items() if dropped}
    standings = tuple(read_standings(folder))
    return GossipResult(plan, terms.topology, history, folder / "last.safetensors", missing, standings)
