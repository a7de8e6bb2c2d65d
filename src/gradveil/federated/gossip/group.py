"""How a participant sends messages to the others when there is no server, and how it finds out who is gone.

Messages are tensors by name, with the same names and shapes at every participant; each travels as one flat tensor over gloo,
with a mark at its end.
Nothing is encrypted or authenticated: a network that everybody on it is trusted with is needed.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

# Public names, which torch does not mark as such for type checkers.
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from gradveil.errors import GradveilError
from gradveil.federated.gossip.last_words import speaking_before_abort

# Seconds in which everybody has to come before the first round.
START_SECONDS = 300.0
# Seconds that it may take until everybody has reported whom it misses.
NEWS_SECONDS = 1.0
# Seconds that the store stays for those who have not found out yet that the training failed.
LEAVING_SECONDS = 10.0
# The end of every message. gloo takes one that is too short, and what is missing would be whatever was in memory.
_END = bytes(range(1, 17))

Message = Mapping[str, Tensor]


def open_store(host: str, port: int, *, keep: bool, listening: int | None = None) -> Store:
    """The store where participants meet: kept in this process (at the socket `listening`, if given) or in another one."""
    limit = timedelta(seconds=START_SECONDS)
    return TCPStore(host, port, is_master=keep, wait_for_workers=False, master_listen_fd=listening, timeout=limit)


class Group:
    """Participant `rank` of `size`; whoever does not answer for `patience` seconds is taken for gone.

    `last_words` hears why this process ends where it cannot raise an error: another one sent a message that is too long.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        store: Store,
        patience: float,
        last_words: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.rank, self.size, self.store, self.patience = rank, size, store, patience
        self.last_words = last_words
        self.awaited: int | None = None

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
            with speaking_before_abort(self._end_by_gloo):
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

    def leave(self) -> None:
        """After a failure: say that this participant has read why. Who keeps the store waits until the others have, too."""
        with suppress(RuntimeError):
            self.store.set(f"left/{self.rank}", "")
            until = time.monotonic() + min(LEAVING_SECONDS, self.patience)
            waited_for = [one for one in self.others if one != _cause(self.store, self.rank)[0]]
            while self.rank == 0 and not self.store.check([f"left/{one}" for one in waited_for]):
                if time.monotonic() > until:
                    break
                time.sleep(NEWS_SECONDS / 10)

    def gather_texts(self, key: str, text: str) -> list[str]:
        """Leave `text` under `key`, and get the texts of all participants in order; waits for all of them to come."""
        self.store.set(f"{key}/{self.rank}", text)
        until = time.monotonic() + START_SECONDS
        texts = []
        for one in range(self.size):
            try:
                self.store.wait([f"{key}/{one}"], timedelta(seconds=max(0.1, until - time.monotonic())))
                texts.append(_read(self.store, f"{key}/{one}"))
            except RuntimeError as error:
                if time.monotonic() < until:  # the store was with participant 0
                    raise PeerLostError(_lost_peer_text(0, "gone", self.patience)) from error
                raise GradveilError(f"participant {one} did not come within {START_SECONDS:g} s") from error
        return texts

    def exchange(self, message: Message, others: Sequence[int]) -> dict[int, dict[str, Tensor]]:
        """Send `message` to `others` and get theirs; all travel at the same time, so nobody waits in a circle."""
        flat = _pack(message)
        arriving = {one: torch.zeros_like(flat) for one in others}
        self._transfer(dict.fromkeys(others, flat), arriving)
        return {one: self._unpack(one, arrived, message) for one, arrived in arriving.items()}

    def send(self, other: int, message: Message) -> None:
        """To one other participant, who has to `receive` it."""
        self._transfer({other: _pack(message)}, {})

    def receive(self, other: int, like: Message) -> dict[str, Tensor]:
        """What one other participant sends, with the names and shapes of `like`."""
        arrived = torch.zeros_like(_pack(like))
        self._transfer({}, {other: arrived})
        return self._unpack(other, arrived, like)

    def _transfer(self, leaving: Mapping[int, Tensor], arriving: Mapping[int, Tensor]) -> None:
        began, other = time.monotonic(), self.rank
        try:
            sent: list[tuple[int, dist.Work | None]] = []
            for other, flat in leaving.items():
                sent.append((other, dist.isend(flat, other)))
            for other, flat in arriving.items():
                # One at a time. gloo sends to who is ready, so a message that it cannot take is of this one.
                self.awaited = other
                _wait(dist.irecv(flat, other))
            for one, work in sent:
                other = one
                _wait(work)
        except RuntimeError as error:
            silent = time.monotonic() - began >= self.patience
            raise self._lost_peer_error(other, "silent" if silent else "gone") from error

    def _unpack(self, other: int, flat: Tensor, like: Message) -> dict[str, Tensor]:
        """The tensors of a message; one that is not whole is of somebody who does not do as agreed."""
        if bytes(flat[-len(_END) :].tolist()) != _END:
            report(self.store, self.rank, f"refused {other}")
            raise PeerLostError(explain(self.store, self.rank, self.patience))
        return _unpack(flat[: -len(_END)], like)

    def _end_by_gloo(self) -> None:
        """The last that this process does, in the thread of gloo that failed."""
        assert self.awaited is not None  # only who is awaited sends
        try:
            report(self.store, self.rank, f"refused {self.awaited}")
            words = explain(self.store, self.rank, self.patience)
        except RuntimeError:  # the store went with participant 0, who got such a message too
            words = _lost_peer_text(self.awaited, "refused", self.patience)
        self.last_words(words)
        self.leave()

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
    """Leave in the store why `rank` ends: `waited OTHER silent`, `waited OTHER gone`, `refused OTHER` or `stopped REASON`."""
    store.set(f"fate/{rank}", fate)


def explain(store: Store, rank: int, patience: float) -> str:
    """Why `rank` ended. Who waits for somebody gone ends too, so the first who is gone is at the end of a chain."""
    cause, how = _cause(store, rank)
    if how.startswith("stopped "):
        return f"participant {cause} stopped: {how.removeprefix('stopped ')}"
    return _lost_peer_text(cause, how, patience)


def _cause(store: Store, rank: int) -> tuple[int, str]:
    """Who is at the end of the chain, and `silent`, `gone`, `refused` or `stopped REASON`. Others may have written anything."""
    asked: list[int] = []
    cause, how = rank, "gone"
    while cause not in asked and store.check([f"fate/{cause}"]):
        asked.append(cause)
        fate = _read(store, f"fate/{cause}")
        if fate.startswith("stopped "):
            return cause, fate
        if refused := re.fullmatch(r"refused ([0-9]{1,9})", fate):
            return int(refused[1]), "refused"
        if waited := re.fullmatch(r"waited ([0-9]{1,9}) (silent|gone)", fate):
            cause, how = int(waited[1]), waited[2]
    return cause, how


def _read(store: Store, key: str) -> str:
    """A text that another participant left, who may be anyone."""
    return store.get(key).decode(errors="replace")


def _wait(work: dist.Work | None) -> None:
    assert work is not None  # None is for processes outside the group
    work.wait()


def _lost_peer_text(rank: int, how: str, patience: float) -> str:
    what = {
        "silent": f"did not answer within {patience:g} s",
        "gone": "is gone",
        "refused": "sent a message of another length than the model gives it",
    }[how]
    return f"participant {rank} {what}; start again to go on"


def _short(error: BaseException) -> str:
    return " ".join(f"{error}".split())[:300] or type(error).__name__


def _pack(message: Message) -> Tensor:
    """All bytes of a message one after the other and the mark, on the CPU: exact for every kind of number."""
    tensors = [tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in message.values()]
    return torch.cat([*tensors, torch.tensor(list(_END), dtype=torch.uint8)])


def _unpack(flat: Tensor, like: Message) -> dict[str, Tensor]:
    pieces = torch.split(flat, [tensor.numel() * tensor.element_size() for tensor in like.values()])
    # A copy begins where numbers of any size may begin.
    return {
        name: piece.clone().view(tensor.dtype).reshape(tensor.shape).to(tensor.device)
        for (name, tensor), piece in zip(like.items(), pieces, strict=True)
    }
