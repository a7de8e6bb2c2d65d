"""Collaborative training without a server: everybody talks with its neighbours, here or on many machines."""

import sys
from pathlib import Path

from gradveil.errors import GradveilError
from gradveil.federated.folder import SETTINGS, claiming
from gradveil.federated.gossip.group import START_SECONDS, Group, open_store
from gradveil.federated.gossip.peer import Peer
from gradveil.federated.gossip.processes import MOST_HERE, run_local_peers
from gradveil.federated.gossip.results import GossipResult, read_result
from gradveil.federated.gossip.settings import GossipSettings
from gradveil.io.locks import working_alone
from gradveil.parallel import using_one_thread
from gradveil.progress import Progress, silent
from gradveil.types import Dataset


def gossip(settings: GossipSettings, dataset: Dataset, folder: Path, *, progress: Progress = silent) -> GossipResult:
    """Train in `folder` with one process per participant on this machine; started again, it goes on.

    In `folder` appear `history.csv` and `last.safetensors` (both of the mean of all weights), `participants.csv`, `log.txt`,
    `recorded/`, and `checkpoints/` for resuming.

    Example:
        settings = GossipSettings(plan, parse_topology("ring", plan.participants))
        gossip(settings, load(plan.dataset), Path("runs/ring")).history
    """
    plan = settings.plan
    if plan.participants > MOST_HERE:
        raise GradveilError(f"one machine runs at most {MOST_HERE} participants at a time, got {plan.participants}")
    with (
        claiming(folder, plan, settings.curiosity, settings.topology.text, device=settings.device),
        working_alone(folder / SETTINGS),
        progress(_title(settings), plan.rounds, "steps") as advance,
    ):
        run_local_peers(settings, dataset, folder, advance)
    return read_result(settings, folder)


def join(
    settings: GossipSettings,
    dataset: Dataset,
    folder: Path,
    *,
    rank: int,
    rendezvous: str,
    progress: Progress = silent,
) -> GossipResult | None:
    """Take part in the same training as participant `rank`, one of many machines; participant 0 gets the result.

    `rendezvous` is HOST:PORT of participant 0, where all meet. Everybody has a folder of its own, or all the same one.
    """
    plan = settings.plan
    if not 0 <= rank < plan.participants:
        raise GradveilError(f"expected a participant from 0 to {plan.participants - 1}, got {rank}")
    host, port = _parse_address(rendezvous)
    with claiming(folder, plan, settings.curiosity, settings.topology.text, device=settings.device):
        try:
            store = open_store(host, port, keep=rank == 0)
        except RuntimeError as error:
            remedy = "a free port of this machine" if rank == 0 else "the address of participant 0"
            raise GradveilError(f"no meeting at {rendezvous} within {START_SECONDS:g} s; use {remedy}") from error
        group = Group(rank, plan.participants, store, settings.patience, last_words=_say_last)
        try:
            with (
                progress(_title(settings), plan.rounds, "steps") as advance,
                using_one_thread(),
                group.joining(),
                settings.device.computing("--batch"),
            ):
                Peer(settings, dataset, folder, group).train(advance)
        except GradveilError:
            group.leave()
            raise
    return read_result(settings, folder) if rank == 0 else None


def _say_last(text: str) -> None:
    """In the words of the command line, since no error reaches it any more."""
    sys.stderr.write(f"gradveil: {text}\n")
    sys.stderr.flush()


def _title(settings: GossipSettings) -> str:
    return f"training {settings.plan.model} with {settings.plan.participants} participants and no server"


def _parse_address(rendezvous: str) -> tuple[str, int]:
    host, _, port = rendezvous.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 2**16:
        raise GradveilError(f"rendezvous: expected HOST:PORT such as 192.168.0.10:29500, got {rendezvous!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
