"""Participants on this machine: one process each, started together and ended together.

`gossip` starts one process more, the nursery. It loads torch once, forks the participants (which costs next to nothing, where
starting them one by one takes seconds each), keeps the store they meet at, and watches over them.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch.distributed import Store  # type: ignore[attr-defined]

from gradveil.errors import GradveilError
from gradveil.federated.gossip.group import NEWS_SECONDS, Group, explain, store_at
from gradveil.federated.gossip.peer import Peer
from gradveil.federated.gossip.terms import Terms
from gradveil.io.typed_json import from_fields
from gradveil.progress import Advance, ignore
from gradveil.types import Dataset, ImageSet

MOST_HERE = 256
# Rounds are reported at most this often, in seconds.
REPORT_SECONDS = 0.2

_CODE = "from gradveil.federated.gossip.nursery import nursery; nursery()"
_LOOPBACK = ("lo", "lo0")


@dataclass(frozen=True)
class Job:
    """What the nursery is told; images are in the open file `images`, and `reports` is where news go."""

    terms: Terms
    folder: Path
    patience: float
    name: str
    classes: tuple[str, ...]
    images: int
    reports: int

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"folder": str(self.folder)})

    @classmethod
    def from_json(cls, text: str) -> "Job":
        raw = json.loads(text)
        terms = from_fields(Terms, raw.pop("terms"))
        raw |= {"folder": Path(raw["folder"]), "classes": tuple(raw["classes"])}
        return cls(terms, **raw)

    def dataset(self) -> Dataset:
        """The images, read where they are: all participants share the memory."""
        with safe_open(f"/dev/fd/{self.images}", framework="pt") as file:
            parts = [
                ImageSet(file.get_tensor(f"{part}/images"), file.get_tensor(f"{part}/labels"), self.classes)
                for part in ("train", "test")
            ]
        return Dataset(self.name, *parts)


def run_local_peers(terms: Terms, dataset: Dataset, folder: Path, patience: float, advance: Advance) -> None:
    """Run a nursery until all participants have ended; an error says which of them did not end well."""
    # A file without a name: nothing is left of it, however this ends.
    with tempfile.TemporaryFile() as images:
        images.write(save(_tensors(dataset)))
        images.flush()
        reading, writing = os.pipe()
        job = Job(terms, folder.absolute(), patience, dataset.name, dataset.train.classes, images.fileno(), writing)
        process = subprocess.Popen(
            # -P: modules come from where this process has them from, and not from the folder it happens to be in.
            [sys.executable, "-P", "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(images.fileno(), writing),
            env=os.environ | _environment(),
            # An interrupt at the terminal reaches this process only, which then ends the others.
            start_new_session=True,
        )
        os.close(writing)
        assert process.stdin is not None
        trouble = ""
        try:
            with os.fdopen(reading, encoding="utf-8", errors="replace") as reports:
                with suppress(BrokenPipeError):  # it ended before it could read; its exit code says so
                    process.stdin.write(f"{job.to_json()}\n".encode())
                    process.stdin.flush()
                for line in reports:  # until nobody is left who could say something
                    kind, _, text = line.rstrip("\n").partition(" ")
                    if kind == "advance":
                        advance(int(text))
                    else:
                        trouble = text
        finally:
            # The nursery and its participants live as long as this pipe does.
            with suppress(BrokenPipeError):
                process.stdin.close()
            code = process.wait()
    if trouble or code:
        raise GradveilError(trouble or f"the participants ended with code {code}; start again to go on")


def nursery() -> None:
    """The process in which participants come into being; the one who started it holds the other end of standard input."""
    job = Job.from_json(sys.stdin.readline())
    torch.set_num_threads(1)
    dataset = job.dataset()
    # The first optimizer loads a good part of torch: once here instead of once in every participant.
    torch.optim.SGD([torch.zeros(1)], lr=1.0)
    # Listening before there is a store: threads, which a store has, do not go well with forks.
    meeting = socket.create_server(("127.0.0.1", 0), backlog=MOST_HERE)
    port = meeting.getsockname()[1]
    life, held = os.pipe()
    processes = {}
    for rank in range(job.terms.plan.participants):
        process = os.fork()
        if process == 0:
            os.close(held)
            meeting.close()
            os._exit(_participant(job, dataset, rank, port, life))
        processes[process] = rank
    os.close(life)
    _die_with(sys.stdin.fileno())
    store = store_at("127.0.0.1", port, keep=True, listening=meeting.detach())
    codes = _watched(processes)
    if any(codes.values()):
        _report(job, f"trouble {_verdict(codes, store, job.patience)}")
    sys.exit(2 if any(codes.values()) else 0)


def _participant(job: Job, dataset: Dataset, rank: int, port: int, life: int) -> int:
    """A participant's whole life; its exit code."""
    _die_with(life)
    try:
        store = store_at("127.0.0.1", port, keep=False)
        group = Group(rank, job.terms.plan.participants, store, job.patience)
        reports = _Reports(job)
        with group.joining():
            Peer(job.terms, dataset, job.folder, group).train(reports if rank == 0 else ignore)
        reports.rest()
    except GradveilError:
        return 2  # the group was told why
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _watched(processes: Mapping[int, int]) -> dict[int, int]:
    """The exit code of everybody by rank, 0 for those who were ended because another one did not end well."""
    codes: dict[int, int] = {}
    left = dict(processes)
    until: float | None = None
    ended = False
    while left:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process:
            code = os.waitstatus_to_exitcode(status)
            codes[left.pop(process)] = 0 if ended and code == -signal.SIGKILL else code
            if code and until is None:
                until = time.monotonic() + 4 * NEWS_SECONDS
            continue
        if until is not None and time.monotonic() > until and not ended:
            ended = True
            for one in left:
                os.kill(one, signal.SIGKILL)
        time.sleep(0.02)
    return codes


def _verdict(codes: Mapping[int, int], store: Store, patience: float) -> str:
    for rank, code in codes.items():
        if code < 0:
            return f"participant {rank} is gone ({signal.Signals(-code).name}); start again to go on"
    return explain(store, next(rank for rank, code in codes.items() if code), patience)


class _Reports:
    """Tells how many rounds are done, not more often than anybody looks."""

    def __init__(self, job: Job) -> None:
        self.job, self.waiting, self.said = job, 0, 0.0

    def __call__(self, units: int) -> None:
        self.waiting += units
        if time.monotonic() - self.said > REPORT_SECONDS:
            self.rest()

    def rest(self) -> None:
        if self.waiting:
            _report(self.job, f"advance {self.waiting}")
        self.waiting, self.said = 0, time.monotonic()


def _report(job: Job, text: str) -> None:
    os.write(job.reports, f"{' '.join(text.split())}\n".encode())


def _die_with(pipe: int) -> None:
    """End this process when the other end of `pipe` is closed, which also happens when its holder is killed."""

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _tensors(dataset: Dataset) -> dict[str, torch.Tensor]:
    parts = {"train": dataset.train, "test": dataset.test}
    tensors = {f"{part}/images": images.images for part, images in parts.items()}
    tensors |= {f"{part}/labels": images.labels for part, images in parts.items()}
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


def _environment() -> dict[str, str]:
    settings = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    settings["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    # A lost connection is reported once and in our words.
    settings["TORCH_CPP_LOG_LEVEL"] = "FATAL"
    loopback = [name for _, name in socket.if_nameindex() if name in _LOOPBACK]
    return settings | ({"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {})
