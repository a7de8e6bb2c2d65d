"""Participants on this machine: one process each, started together and ended together.

`run_local_peers` starts one process more, the launcher. It loads torch once and forks the participants, which costs next to
nothing, where starting them one by one takes seconds each. It keeps the store they meet at and watches over them.
"""

import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.multiprocessing.spawn import ProcessContext, ProcessExitedException, ProcessRaisedException, start_processes

from gradveil.errors import GradveilError
from gradveil.federated.gossip.group import NEWS_SECONDS, Group, explain, open_store
from gradveil.federated.gossip.peer import Peer
from gradveil.federated.gossip.settings import GossipSettings
from gradveil.progress import Advance, ignore
from gradveil.types import Dataset

if TYPE_CHECKING:
    from ctypes import c_longlong

MOST_HERE = 256
# Seconds between two reports of how many rounds are done.
REPORT_SECONDS = 0.2

_CODE = "from gradveil.federated.gossip.processes import launch_peers; launch_peers()"
_LOOPBACK = ("lo", "lo0")


def run_local_peers(settings: GossipSettings, dataset: Dataset, folder: Path, advance: Advance) -> None:
    """Run all participants until they have ended; an error says which of them did not end well."""
    process = subprocess.Popen(
        # -P: modules come from where this process has them from, and not from the folder it happens to be in.
        [sys.executable, "-P", "-c", _CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | _environment(),
        # An interrupt at the terminal reaches this process only, which then ends the others.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    trouble = ""
    with process.stdout as reports:
        try:
            with suppress(BrokenPipeError):  # it ended before it could read; its exit code says so
                pickle.dump((settings, dataset, folder.absolute()), process.stdin)
                process.stdin.flush()
            for line in reports:  # until nobody is left who could write one
                if line.strip().isdigit():
                    advance(int(line))
                else:
                    trouble = line.decode(errors="replace").strip()
        finally:
            # The launcher and its participants live as long as this pipe does.
            with suppress(BrokenPipeError):
                process.stdin.close()
            code = process.wait()
    if trouble or code:
        raise GradveilError(trouble or f"the participants ended with code {code}; start again to go on")


def launch_peers() -> None:
    """The launcher's whole life; `run_local_peers` holds the other ends of its standard input and output."""
    settings, dataset, folder = pickle.load(sys.stdin.buffer)
    reports = os.dup(sys.stdout.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # a model of the user's own may print
    torch.set_num_threads(1)
    # The first optimizer loads a good part of torch: once here instead of once in every participant.
    torch.optim.SGD([torch.zeros(1)], lr=1.0)
    # Listening before there is a store: threads, which a store has, do not go well with forks.
    meeting = socket.create_server(("127.0.0.1", 0), backlog=MOST_HERE)
    rounds = RawValue("q")
    arguments = (settings, dataset, folder, meeting.getsockname()[1], rounds)
    count = settings.plan.participants
    peers = start_processes(_run_peer, arguments, count, join=False, start_method="fork")  # type: ignore[no-untyped-call]
    _exit_when_closed(sys.stdin.fileno())
    store = open_store("127.0.0.1", meeting.getsockname()[1], keep=True, listening=meeting.detach())
    try:
        _watch_peers(peers, rounds, reports)
    except (ProcessExitedException, ProcessRaisedException) as error:
        if isinstance(error, ProcessExitedException) and error.signal_name:
            trouble = f"participant {error.error_index} is gone ({error.signal_name}); start again to go on"
        else:
            trouble = explain(store, error.error_index, settings.patience)
        if isinstance(error, ProcessRaisedException):  # nobody expected it, so the traceback matters
            sys.stderr.write(f"{error}\n")
        os.write(reports, f"{' '.join(trouble.split())}\n".encode())
        sys.exit(2)


def _watch_peers(peers: ProcessContext, rounds: "c_longlong", reports: int) -> None:
    """Report how many rounds are done until all participants have ended; raises torch's error if one did not end well."""
    # torch ends the others then, and warns of each.
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    reported, ended = 0, False
    while not ended:
        ended = peers.join(timeout=REPORT_SECONDS, grace_period=2 * NEWS_SECONDS)
        if rounds.value > reported:
            os.write(reports, f"{rounds.value - reported}\n".encode())
            reported = rounds.value


def _run_peer(
    rank: int, settings: GossipSettings, dataset: Dataset, folder: Path, port: int, rounds: "c_longlong"
) -> None:
    """A participant's whole life."""
    parent = parent_process()
    assert parent is not None
    _exit_when_closed(parent.sentinel)

    def advance(units: int) -> None:
        rounds.value += units

    group = Group(rank, settings.plan.participants, open_store("127.0.0.1", port, keep=False), settings.patience)
    try:
        with group.joining(), settings.device.computing("--participants", "--batch"):
            Peer(settings, dataset, folder, group).train(advance if rank == 0 else ignore)
    except GradveilError:
        sys.exit(2)  # the others have been told why


def _exit_when_closed(pipe: int) -> None:
    """End this process when the other end of `pipe` is closed, which also happens when its holder is killed."""

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _environment() -> dict[str, str]:
    settings = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    settings["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    # A lost connection is reported once and in our words.
    settings["TORCH_CPP_LOG_LEVEL"] = "FATAL"
    loopback = [name for _, name in socket.if_nameindex() if name in _LOOPBACK]
    return settings | ({"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {})
