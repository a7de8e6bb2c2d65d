"""Hostile participants: updates that do not fit, that are no numbers, or that are no updates, in all three engines."""

import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.faults.trying import Ending, Tally, call_in_fork
from gradveil.datasets import load
from gradveil.federated import FederatedPlan, Update, federate, participants_of
from gradveil.types import Dataset

Change = Callable[[Update], Update]


def _first(change: Callable[[Tensor], Tensor]) -> Change:
    def changed(update: Update) -> Update:
        name = next(iter(update.gradients))
        return replace(update, gradients={**update.gradients, name: change(update.gradients[name])})

    return changed


HOSTILE: dict[str, Change] = {
    "NaN": _first(lambda one: one * torch.nan),
    "one NaN": _first(lambda one: one.clone().index_put_((torch.tensor(0),), torch.tensor(torch.nan))),
    "infinity": _first(lambda one: one + torch.inf),
    "minus infinity": _first(lambda one: one - torch.inf),
    "another name": lambda update: replace(update, gradients={**update.gradients, "another": torch.zeros(1)}),
    "a name missing": lambda update: replace(update, gradients=dict(list(update.gradients.items())[1:])),
    "no names": lambda update: replace(update, gradients={}),
    "another shape": _first(lambda one: one.reshape(-1)),
    "no shape": _first(lambda one: one.sum()),
    "another size": _first(lambda one: one.repeat(2, *[1] * (one.ndim - 1))),
    "nothing in it": _first(lambda one: one[:0]),
    "another type": _first(lambda one: one.double()),
    "whole numbers": _first(lambda one: one.long()),
    "other buffers": lambda update: replace(update, buffers={"mean": torch.ones(3)}),
    "too many images": lambda update: replace(update, images=10**12),
    "no images": lambda update: replace(update, images=0),
    "less than no images": lambda update: replace(update, images=-5),
    "half an image": lambda update: replace(update, images=0.5),  # type: ignore[arg-type]
}
SAYS = "participant-2.txt"
PLAN = FederatedPlan("few", "lenet", participants=3, rounds=2, batch=5)


def run(scratch: Path, *, count: int, seed: int, done: frozenset[str] = frozenset()) -> Iterator[dict[str, object]]:
    """Every kind of hostile update in every engine, in a minute; `count` is not needed."""
    fashion = load("fashion-mnist-tenth")
    few = Dataset("few", fashion.train.take(range(60)), fashion.test.take(range(30)))
    for try_engine in (lambda: embedded(scratch, few), lambda: flower(few), lambda: gloo(scratch, few)):
        row = try_engine().row()
        if row["what"] not in done:
            yield row


def embedded(scratch: Path, few: Dataset) -> Tally:
    """Participant 1 of 3 is hostile in every round; the training must end, and say so."""
    tally = Tally("hostile participant, embedded")
    everybody = participants_of(PLAN, few.train)
    for number, (kind, change) in enumerate(HOSTILE.items()):
        folder = scratch / f"embedded-{number}"

        def gather(at: int, chosen: Sequence[int], network: nn.Module, change: Change = change) -> Mapping[int, Update]:
            found = {one: everybody[one].contribute(network, at) for one in chosen}
            return {one: change(update) if one == 1 else update for one, update in found.items()}

        ending = call_in_fork(lambda: federate(PLAN, few, folder, gather=gather), seconds=120)  # noqa: B023
        log = (folder / "log.txt").read_text() if (folder / "log.txt").exists() else ""
        named = log.count("the update of participant 1 is refused") == PLAN.rounds
        _note(tally, kind, ending, named=named)
    return tally


def flower(few: Dataset) -> Tally:
    """What the server makes of the records that a node answers with."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    from gradveil.errors import GradveilError
    from gradveil.federated import network_of
    from gradveil.federated.flower.messages import update_from_records, update_to_records

    tally = Tally("hostile answer to a Flower server")
    network = network_of(PLAN, few)
    update = participants_of(PLAN, few.train)[0].contribute(network, 0)
    answers: dict[str, Callable[[], RecordDict]] = {
        kind: (lambda change=change: update_to_records(change(update))) for kind, change in HOSTILE.items()
    }
    whole = update_to_records(update)
    for kind, data in {"no array": b"x", "empty": b"", "a pickle": b"\x80\x04K\x01.", "half": None}.items():

        def broken(data: bytes | None = data) -> RecordDict:
            name, array = next(iter(whole.array_records["gradients"].items()))
            bad = Array(
                array.dtype, array.shape, array.stype, array.data[: len(array.data) // 2] if data is None else data
            )
            arrays = {**whole.array_records["gradients"], name: bad}
            return RecordDict(
                {"gradients": ArrayRecord(arrays), "buffers": ArrayRecord(), "facts": ConfigRecord({"images": 1})}
            )

        answers[f"bytes that are {kind}"] = broken
    answers["nothing at all"] = RecordDict
    answers["images as a text"] = lambda: RecordDict({**whole, "facts": ConfigRecord({"images": "many"})})
    for kind, answer in answers.items():
        try:
            records = answer()
        except Exception as error:  # Flower itself does not send such a thing
            tally.add("cannot be sent", held=True, about=f"{kind}: {error}")
            continue
        try:
            update_from_records(records, network, most=PLAN.batch or 1)
            tally.add("accepted", held=False, about=kind)
        except GradveilError:
            tally.add("refused by name, training goes on", held=True)
        except Exception as error:
            tally.add(type(error).__name__, held=False, about=kind)
    return tally


GLOO: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "NaN": lambda message: {name: one * torch.nan if one.is_floating_point() else one for name, one in message.items()},
    "infinity": lambda message: {
        name: one + torch.inf if one.is_floating_point() else one for name, one in message.items()
    },
    "one NaN": lambda message: {
        name: one.clone().index_put_((torch.tensor(0),), torch.tensor(torch.nan)) if number == 0 else one
        for number, (name, one) in enumerate(message.items())
    },
    "too short": lambda message: dict(list(message.items())[1:]),
    "too long": lambda message: {**message, "more": torch.zeros(1000)},
}
# These can be left out of a sum; with a message of another length all end, with a line that names who.
GOES_ON = ("NaN", "infinity", "one NaN")
SAID = {
    "introduction that is no JSON": "{",
    "introduction of another kind": '{"rounds": "all"}',
    "other plan": '{"rounds": [], "settings": "x"}',
}


def gloo(scratch: Path, few: Dataset) -> Tally:
    """Participant 1 of 3 sends other messages than it should, over real connections."""
    tally = Tally("hostile neighbour, gloo")
    for number, kind in enumerate([*GLOO, *SAID]):
        folder = scratch / f"gloo-{number}"
        with socket.create_server(("127.0.0.1", 0)) as free:
            meeting = f"127.0.0.1:{free.getsockname()[1]}"
        others = [
            multiprocessing.get_context("fork").Process(target=_take_part, args=(rank, kind, meeting, few, folder))
            for rank in (1, 2)
        ]
        for other in others:
            other.start()
        ending = call_in_fork(lambda: _take_part(0, "", meeting, few, folder), seconds=120)  # noqa: B023
        for other in others:
            other.join(20)
            other.kill()
        log = folder / "0" / "log.txt"
        said = ending.said + (log.read_text() if log.exists() else "")
        theirs = (folder / SAYS).read_text()
        if kind in GOES_ON:
            _note(tally, kind, ending, named="the message of participant 1 is refused" in said)
        else:
            named = all(_names_it(text) for text in (ending.said, theirs)) and ending.code == 2
            tally.add(
                "all end, in one line that names it" if named else f"code {ending.code}",
                held=named,
                about=f"{kind} {said[-200:]} {theirs[-200:]}",
            )
    return tally


def _names_it(said: str) -> bool:
    """Whether an honest participant ended in one line, about participant 1."""
    return len(said.splitlines()) == 1 and said.startswith("gradveil: participant 1 ")


def _take_part(rank: int, kind: str, meeting: str, few: Dataset, folder: Path) -> None:
    from gradveil.errors import GradveilError
    from gradveil.federated.gossip.group import Group
    from gradveil.federated.gossip.settings import GossipSettings
    from gradveil.federated.gossip.topology import parse_topology
    from gradveil.federated.gossip.training import join

    torch.set_num_threads(1)
    if rank == 2:
        folder.mkdir(parents=True, exist_ok=True)
        os.dup2(os.open(folder / SAYS, os.O_WRONLY | os.O_CREAT), 2)
    if rank == 1 and kind in GLOO:
        honest = Group.exchange

        def exchange(self: Group, message: Any, others: Sequence[int]) -> Any:
            hostile = GLOO[kind](dict(message))
            if kind in GOES_ON:
                return honest(self, hostile, others)
            from gradveil.federated.gossip.group import _pack

            arriving = {one: torch.empty_like(_pack(message)) for one in others}
            self._transfer(dict.fromkeys(others, _pack(hostile)), arriving)
            return {one: dict(message) for one in others}  # and goes on as if nothing were wrong

        Group.exchange = exchange  # type: ignore[method-assign]
    if rank == 1 and kind in SAID:
        gathered = Group.gather_texts

        def gather_texts(self: Group, key: str, text: str) -> list[str]:
            return gathered(self, key, SAID[kind] if key == "start" else text)

        Group.gather_texts = gather_texts  # type: ignore[method-assign]
    plan = replace(PLAN, model="mlp-16", rounds=5)
    settings = GossipSettings(plan, parse_topology("complete", 3), patience=5.0, evaluations=1)
    try:
        join(settings, few, folder / str(rank), rank=rank, rendezvous=meeting)
    except GradveilError as error:
        sys.stderr.write(f"gradveil: {error}\n")
        sys.exit(2)


def _note(tally: Tally, kind: str, ending: Ending, *, named: bool) -> None:
    good = ending.code == 0 and named
    outcome = (
        "refused by name, training goes on" if good else f"code {ending.code}, {'named' if named else 'not named'}"
    )
    tally.add(outcome, held=good, about=f"{kind} {ending.said[-200:]}")
