"""How a participant sends messages to the others when there is no server, and how it finds out who is gone.

Messages are tensors by name, with the same names and shapes at every participant; each travels as one flat tensor over gloo.
Nothing is encrypted or authenticated: a network that everybody on it is trusted with is needed.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

# Public names, which torch does not mark as such for type checkers.
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from gradveil.errors import GradveilError

# Seconds in which everybody has to come before the first round.
START_SECONDS = 300.0
# Seconds that it may take until everybody has reported whom it misses.
NEWS_SECONDS = 1.0

Message = Mapping[str, Tensor]


def open_store(host: str, port: int, *, keep: bool, listening: int | None = None) -> Store:
    """The store where participants meet: kept in this process (at the socket `listening`, if given) or in another one."""
    limit = timedelta(seconds=START_SECONDS)
    return TCPStore(host, port, is_master=keep, wait_for_workers=False, master_listen_fd=listening, timeout=limit)


class Group:
    """Participant `rank` of `size`; whoever does not answer for `patience` seconds is taken for gone."""

    def __init__(self, rank: int, size: int, store: Store, patience: float) -> None:
        self.rank, self.size, self.store, self.patience = rank, size, store, patience

    @property
    def others(self) -> list[int]:
        return [one for one in range(self.size) if one != self.rank]

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Connect with all others for the block; if it fails, report why to them."""
        try:
            self.gather_texts("here", "")
            try:
                limit = timedelta(seconds=self.patience)
                store = PrefixStore("gloo", self.store)
                dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size, timeout=limit)
            except RuntimeError as error:
                raise GradveilError(f"participants cannot connect with each other: {_short(error)}") from error
            yield
        except PeerLostError:
            raise
        except BaseException as error:
            with suppress(RuntimeError):  # where the store is gone too, the first error is the one to see
                report(self.store, self.rank, f"stopped {_short(error)}")
            raise
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    def gather_texts(self, key: str, text: str) -> list[str]:
        """Leave `text` under `key`, and get the texts of all participants in order; waits for all of them to come."""
        self.store.set(f"{key}/{self.rank}", text)
        until = time.monotonic() + START_SECONDS
        texts = []
        for one in range(self.size):
            try:
                self.store.wait([f"{key}/{one}"], timedelta(seconds=max(0.1, until - time.monotonic())))
                texts.append(self.store.get(f"{key}/{one}").decode())
            except RuntimeError as error:
                raise GradveilError(f"participant {one} did not come within {START_SECONDS:g} s") from error
        return texts

    def exchange(self, message: Message, others: Sequence[int]) -> dict[int, dict[str, Tensor]]:
        """Send `message` to `others` and get theirs; all travel at the same time, so nobody waits in a circle."""
        flat = _pack(message)
        arriving = {one: torch.empty_like(flat) for one in others}
        self._transfer(dict.fromkeys(others, flat), arriving)
        return {one: _unpack(arrived, message) for one, arrived in arriving.items()}

    def send(self, other: int, message: Message) -> None:
        """To one other participant, who has to `receive` it."""
        self._transfer({other: _pack(message)}, {})

    def receive(self, other: int, like: Message) -> dict[str, Tensor]:
        """What one other participant sends, with the names and shapes of `like`."""
        arrived = torch.empty_like(_pack(like))
        self._transfer({}, {other: arrived})
        return _unpack(arrived, like)

    def _transfer(self, leaving: Mapping[int, Tensor], arriving: Mapping[int, Tensor]) -> None:
        began, other = time.monotonic(), self.rank
        under_way: list[tuple[int, dist.Work | None]] = []
        try:
            for other, flat in leaving.items():
                under_way.append((other, dist.isend(flat, other)))
            for other, flat in arriving.items():
                under_way.append((other, dist.irecv(flat, other)))
            for one, work in under_way:
                other = one
                assert work is not None  # None is for processes outside the group
                work.wait()
        except RuntimeError as error:
            silent = time.monotonic() - began >= self.patience
            raise self._lost_peer_error(other, "silent" if silent else "gone") from error

    def _lost_peer_error(self, other: int, how: str) -> "PeerLostError":
        """An error that names `other`, unless that only waited for somebody else in its turn."""
        try:
            report(self.store, self.rank, f"waited {other} {how}")
            time.sleep(NEWS_SECONDS)
            return PeerLostError(explain(self.store, self.rank, self.patience))
        except RuntimeError:  # the store was with participant 0
            return PeerLostError(_lost_peer_text(0, "gone", self.patience))


class PeerLostError(GradveilError):
    """A participant does not answer any more; the others find it out by themselves."""


def report(store: Store, rank: int, fate: str) -> None:
    """Leave in the store why `rank` ends: `waited OTHER silent`, `waited OTHER gone` or `stopped REASON`."""
    store.set(f"fate/{rank}", fate)


def explain(store: Store, rank: int, patience: float) -> str:
    """Why `rank` ended. Who waits for somebody gone ends too, so the first who is gone is at the end of a chain."""
    asked: list[int] = []
    gone, how = rank, "gone"
    while gone not in asked and store.check([f"fate/{gone}"]):
        asked.append(gone)
        kind, _, rest = store.get(f"fate/{gone}").decode().partition(" ")
        if kind == "stopped":
            return f"participant {gone} stopped: {rest}"
        other, how = rest.split()
        gone = int(other)
    return _lost_peer_text(gone, how, patience)


def _lost_peer_text(rank: int, how: str, patience: float) -> str:
    what = f"did not answer within {patience:g} s" if how == "silent" else "is gone"
    return f"participant {rank} {what}; start again to go on"


def _short(error: BaseException) -> str:
    return " ".join(f"{error}".split())[:300] or type(error).__name__


def _pack(message: Message) -> Tensor:
    """All bytes of a message one after the other, on the CPU: exact for every kind of number."""
    return torch.cat([tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in message.values()])


def _unpack(flat: Tensor, like: Message) -> dict[str, Tensor]:
    pieces = torch.split(flat, [tensor.numel() * tensor.element_size() for tensor in like.values()])
    # A copy begins where numbers of any size may begin.
    return {
        name: piece.clone().view(tensor.dtype).reshape(tensor.shape).to(tensor.device)
        for (name, tensor), piece in zip(like.items(), pieces, strict=True)
    }
