"""One participant of a training without a server: its own weights and momentum, its rounds, and what it writes down."""

import copy
import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.federated.folder import CHECKPOINTS, read_checkpoint, write_checkpoint
from gradveil.federated.gossip.group import Group
from gradveil.federated.gossip.mixing import approach, common_draws, mix
from gradveil.federated.gossip.standings import Standing, write_standings
from gradveil.federated.gossip.terms import Terms
from gradveil.federated.history import HistoryRow, write_history
from gradveil.federated.participant import Update, network_of, participants_of
from gradveil.federated.recordings import RECORDED, Recording
from gradveil.federated.rounds import card_of, looks_of
from gradveil.federated.server import Server, accuracy_of
from gradveil.io.files import write_text
from gradveil.io.tensors import part_of
from gradveil.models.weights import save_weights
from gradveil.progress import Advance
from gradveil.types import Dataset

KEPT_CHECKPOINTS = 2


class Peer:
    """Participant `group.rank` between two rounds.

    In a round it computes its update g_i at its own weights w_i, swaps (w_i, g_i) with its neighbours, mixes
    w_i <- sum_j W_ij w_j and makes the server's step with sum_j W_ij g_j. Participant 0 also keeps the books.
    """

    def __init__(self, terms: Terms, dataset: Dataset, folder: Path, group: Group) -> None:
        self.terms, self.dataset, self.folder, self.group = terms, dataset, folder, group
        self.plan, self.rank = terms.plan, group.rank
        self.me = participants_of(self.plan, dataset.train)[self.rank]
        self.server = Server(self.plan, network_of(self.plan, dataset))
        self.round = 0
        self.history: list[HistoryRow] = []
        self.log: list[str] = []
        self._resume()
        self.met, self.met_round, self.next_meeting = time.monotonic(), self.round, self.round + 1

    def train(self, advance: Advance) -> None:
        """All rounds that are left, and what is written in the end."""
        looks = looks_of(self.plan, self.terms.curiosity, self.terms.evaluations)
        advance(self.round)
        while self.round < self.plan.rounds:
            self._look(looks)
            self._one_round()
            advance(1)
            if self.round == self.next_meeting and self.round < self.plan.rounds:
                self._meet()
        self._look(looks)
        self._meet()
        self._finish()

    def _one_round(self) -> None:
        number, present = self.round, self.terms.present(self.round)
        if self.rank == 0:
            self._say_who_is_missing(number, present)
        if self.rank in present:
            network = self.server.network
            update = self.me.contribute(network, number)
            mine = {f"state/{name}": tensor.clone() for name, tensor in network.state_dict().items()}
            mine |= {f"update/{name}": tensor for name, tensor in update.gradients.items()}
            mine |= {f"buffers/{name}": tensor for name, tensor in update.buffers.items()}
            row = self.terms.topology.weights(self.rank, present)
            messages = self.group.swap(mine, [one for one in row if one != self.rank])
            self._record(number, messages)
            self._step(number, messages | {self.rank: mine}, row)
        self.round += 1

    def _step(self, number: int, messages: Mapping[int, Mapping[str, Tensor]], row: Mapping[int, Fraction]) -> None:
        states, updates, buffers = (
            {one: part_of(messages[one], part) for one in row} for part in ("state", "update", "buffers")
        )
        drawn = common_draws(states, row, self.rank)
        with torch.no_grad():
            for name, weight in self.server.network.named_parameters():
                weight.copy_(drawn[name])
        update = Update(mix(updates, row, self.rank), mix(buffers, row, self.rank), 1)
        self.server.step(number, {self.rank: update})

    def _record(self, number: int, messages: Mapping[int, Mapping[str, Tensor]]) -> None:
        """The curious participant writes down what its first neighbour after it sent, just as a curious server would."""
        curiosity = self.terms.curiosity
        if curiosity is None or self.rank != curiosity.participant or number not in curiosity.rounds or not messages:
            return
        seen = min(messages, key=lambda one: (one < self.rank, one))
        update, state = part_of(messages[seen], "update"), part_of(messages[seen], "state")
        Recording(self.plan, number, (seen,), update, state).write(self.folder / RECORDED)

    def _look(self, looks: set[int]) -> None:
        """Accuracy of the mean of all weights, where that is due."""
        if self.round not in looks:
            return
        mean = self._mean()
        if self.rank == 0 and all(row.round != self.round for row in self.history):
            self.history.append(HistoryRow(self.round, self._accuracy(mean), len(self.dataset.test)))
            write_history(self.folder, self.history)

    def _mean(self) -> dict[str, Tensor]:
        """At participant 0 the mean of all weights; the others only send theirs."""
        own = {name: tensor.clone() for name, tensor in self.server.network.state_dict().items()}
        if self.rank != 0:
            self.group.send(0, own)
            return own
        # One after the other: everybody's weights at the same time may not fit into memory.
        mean = {name: tensor.clone() for name, tensor in own.items()}
        for other in self.group.others:
            approach(mean, own, self.group.receive(other, own), 1 / self.group.size)
        return mean

    def _accuracy(self, state: Mapping[str, Tensor]) -> float:
        network = copy.deepcopy(self.server.network)
        network.load_state_dict(state)
        return accuracy_of(network, self.dataset.test, seed=self.plan.seed)

    def _meet(self) -> None:
        """Everybody keeps what it has, and participant 0 says by its clock when that is to happen again.

        Nobody goes on before all have a checkpoint of this round, so of two kept checkpoints all have one in common.
        """
        self._save()
        note = {"round": torch.tensor([self.round])}
        if self.rank == 0:
            for other in self.group.others:
                self.group.receive(other, note)
            pace = (time.monotonic() - self.met) / max(1, self.round - self.met_round)
            note = {"round": torch.tensor([self.round + max(1, int(self.terms.checkpoint_seconds / max(pace, 1e-6)))])}
            for other in self.group.others:
                self.group.send(other, note)
        else:
            self.group.send(0, note)
            note = self.group.receive(0, note)
        self.met, self.met_round, self.next_meeting = time.monotonic(), self.round, int(note["round"])
        for number, path in sorted(self._checkpoints().items())[:-KEPT_CHECKPOINTS]:
            if number < self.round:
                path.unlink()

    def _finish(self) -> None:
        """The mean as `last.safetensors`, and in `participants.csv` how far everybody is from it."""
        mean = self._mean()
        if self.rank == 0:
            for other in self.group.others:
                self.group.send(other, mean)
        else:
            mean = self.group.receive(0, mean)
        standing = self._standing(mean)
        told = {"standing": torch.tensor([standing.images, standing.accuracy, standing.distance], dtype=torch.float64)}
        if self.rank != 0:
            self.group.send(0, told)
            return
        standings = [standing]
        for other in self.group.others:
            images, accuracy, distance = self.group.receive(other, told)["standing"].tolist()
            standings.append(Standing(other, int(images), accuracy, len(self.dataset.test), distance))
        write_standings(self.folder, standings)
        network = copy.deepcopy(self.server.network)
        network.load_state_dict(mean)
        card = card_of(self.plan, self.dataset, self.history[-1].accuracy)
        write_history(self.folder, self.history)
        save_weights(self.folder / "last.safetensors", network, card)

    def _standing(self, mean: Mapping[str, Tensor]) -> Standing:
        own = dict(self.server.network.named_parameters())
        squares = sum(float((weight.detach().double() - mean[name]).square().sum()) for name, weight in own.items())
        distance = (squares / sum(weight.numel() for weight in own.values())) ** 0.5
        accuracy = self._accuracy(self.server.network.state_dict())
        return Standing(self.rank, len(self.me.indices), accuracy, len(self.dataset.test), distance)

    def _checkpoints(self) -> dict[int, Path]:
        """What this participant kept, by round."""
        found = {}
        for path in (self.folder / CHECKPOINTS).glob(f"participant-{self.rank:04}-round-*.safetensors"):
            if match := re.fullmatch(r"round-([0-9]{1,9})", path.stem.removeprefix(f"participant-{self.rank:04}-")):
                found[int(match[1])] = path
        return found

    def _save(self) -> None:
        facts = {"round": self.round, "history": [asdict(row) for row in self.history], "log": self.log}
        name = f"participant-{self.rank:04}-round-{self.round:06}.safetensors"
        write_checkpoint(self.folder / CHECKPOINTS / name, self.server, facts)

    def _resume(self) -> None:
        """Go on after the last round that everybody has a checkpoint of."""
        for half in (self.folder / CHECKPOINTS).glob(f".participant-{self.rank:04}-*"):
            half.unlink()  # it was being written when somebody killed us
        mine = self._checkpoints()
        said = [json.loads(one) for one in self.group.told("start", self._introduction(sorted(mine)))]
        for other, introduction in enumerate(said):
            if introduction["terms"] != said[0]["terms"]:
                raise GradveilError(
                    f"participant {other} has another plan, topology, data or version than participant 0; "
                    "the same for all would do"
                )
        self.round = max(set(mine).intersection(*(one["rounds"] for one in said)), default=0)
        for number, path in mine.items():
            if number > self.round:
                path.unlink()
        if self.round:
            self._load(mine[self.round])

    def _introduction(self, rounds: list[int]) -> str:
        return json.dumps({"terms": self.terms.fingerprint(self.dataset), "rounds": rounds})

    def _load(self, path: Path) -> None:
        try:
            state, facts = read_checkpoint(path)
            self.server.load(state)
            self.history = [HistoryRow(**row) for row in facts["history"]]
            self.log = [str(line) for line in facts["log"]]
        except (GradveilError, ValueError, KeyError, TypeError) as error:
            raise GradveilError(f"{path}: damaged ({error}); remove it to go on from an earlier round") from error

    def _say_who_is_missing(self, number: int, present: set[int]) -> None:
        curiosity, topology = self.terms.curiosity, self.terms.topology
        if dropped := self.plan.dropped(number):
            self._say(f"round {number}: no answer from participant {', '.join(map(str, dropped))}; went on without")
        if not present:
            self._say(f"round {number}: nobody answered; the weights stay as they are")
        if curiosity is not None and number in curiosity.rounds:
            who = curiosity.participant
            if who not in present or not present.intersection(topology.neighbours(who)):
                self._say(f"round {number}: curious participant {who} got no message, so nothing is recorded")

    def _say(self, text: str) -> None:
        self.log.append(text)
        write_text(self.folder / "log.txt", "".join(f"{line}\n" for line in self.log))
