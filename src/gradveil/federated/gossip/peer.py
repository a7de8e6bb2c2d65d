"""One participant of a training without a server: its own weights and momentum, its rounds, and what it writes down."""

import copy
import json
import logging
import re
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.errors import GradveilError
from gradveil.federated.checking import are_finite
from gradveil.federated.folder import CHECKPOINTS
from gradveil.federated.gossip.group import Group
from gradveil.federated.gossip.mixing import add_difference, mix, mix_weights
from gradveil.federated.gossip.results import PeerResult, write_peer_results
from gradveil.federated.gossip.settings import GossipSettings
from gradveil.federated.participant import Update, participants_of
from gradveil.federated.recordings import RECORDED, Recording
from gradveil.federated.training import Training
from gradveil.io.files import parse_object
from gradveil.io.tensors import part_of
from gradveil.types import Dataset

KEPT_CHECKPOINTS = 2
logger = logging.getLogger(__name__)


class Peer(Training):
    """Participant `group.rank` between two rounds.

    In a round it computes its update g_i at its own weights w_i and exchanges (w_i, g_i) with its neighbours. It mixes
    w_i <- sum_j W_ij w_j, and makes the server's step with sum_j W_ij g_j. Participant 0 also writes the files of all.
    """

    def __init__(self, settings: GossipSettings, dataset: Dataset, folder: Path, group: Group) -> None:
        super().__init__(settings.plan, dataset, folder, settings.curiosity, settings.evaluations, settings.device)
        self.settings, self.group, self.rank = settings, group, group.rank
        self.participant = participants_of(self.plan, dataset.train)[self.rank]
        self._resume()
        if self.rank == 0:
            self.write_log()
        self.saved, self.saved_round, self.next_checkpoint = time.monotonic(), self.round, self.round + 1

    def train_round(self) -> None:
        """Compute an update, exchange it with the neighbours, make the step."""
        present = self.settings.present(self.round)
        if self.rank == 0:
            self._note_absences(present)
        if self.rank not in present:
            return
        network = self.server.network
        update = self.participant.contribute(network, self.round)
        message = {f"state/{name}": tensor.clone() for name, tensor in network.state_dict().items()}
        message |= {f"update/{name}": tensor for name, tensor in update.gradients.items()}
        message |= {f"buffers/{name}": tensor for name, tensor in update.buffers.items()}
        row = self.settings.topology.weights(self.rank, present)
        messages = self.group.exchange(message, [one for one in row if one != self.rank])
        for one in [one for one, theirs in messages.items() if not are_finite(theirs)]:
            # Its part in the mean is this participant's own from now on.
            row = {**row, self.rank: row[self.rank] + row[one]}
            del messages[one], row[one]
            self._refuse(one, "message")
        self._record(messages)
        self._step(messages | {self.rank: message}, row)

    def network_to_measure(self) -> nn.Module | None:
        """At participant 0 a network with the mean of all weights."""
        mean = self._mean()
        return self._network(mean) if self.rank == 0 else None

    def checkpoint_is_due(self) -> bool:
        return self.round == self.next_checkpoint

    def save_checkpoint(self) -> None:
        """All keep what they have, and participant 0 says by its clock in which round that is to happen again.

        Nobody goes on before all have a checkpoint of this round. So of two kept checkpoints all have one in common.
        """
        name = f"participant-{self.rank:04}-round-{self.round:06}.safetensors"
        self.write_checkpoint(self.folder / CHECKPOINTS / name)
        note = {"round": torch.tensor([self.round])}
        if self.rank == 0:
            for other in self.group.others:
                self.group.receive(other, note)
            pace = (time.monotonic() - self.saved) / max(1, self.round - self.saved_round)
            rounds = max(1, int(self.settings.checkpoint_seconds / max(pace, 1e-6)))
            note = {"round": torch.tensor([self.round + rounds])}
            for other in self.group.others:
                self.group.send(other, note)
        else:
            self.group.send(0, note)
            note = self.group.receive(0, note)
        self.saved, self.saved_round, self.next_checkpoint = time.monotonic(), self.round, int(note["round"])
        for number, path in sorted(self._checkpoints().items())[:-KEPT_CHECKPOINTS]:
            if number < self.round:
                path.unlink()

    def finish(self) -> None:
        """Write the mean as `last.safetensors`, and into `participants.csv` how far everybody is from it."""
        mean = self._mean()
        if self.rank == 0:
            for other in self.group.others:
                self.group.send(other, mean)
        else:
            mean = self.group.receive(0, mean)
        own = self._result(mean)
        figures = {"figures": torch.tensor([own.images, own.accuracy, own.distance], dtype=torch.float64)}
        if self.rank != 0:
            self.group.send(0, figures)
            return
        results = [own]
        for other in self.group.others:
            theirs = self.group.receive(other, figures)
            images, accuracy, distance = theirs["figures"].tolist()
            if are_finite(theirs) and 0 <= accuracy <= 1:
                results.append(PeerResult(other, int(images), accuracy, len(self.dataset.test), distance))
            else:
                self._refuse(other, "result")
        write_peer_results(self.folder, results)
        self.write_result(self._network(mean))

    def _step(self, messages: Mapping[int, Mapping[str, Tensor]], row: Mapping[int, Fraction]) -> None:
        states, updates, buffers = (
            {one: part_of(messages[one], part) for one in row} for part in ("state", "update", "buffers")
        )
        mixed = mix_weights(states, row, self.rank)
        with torch.no_grad():
            for name, weight in self.server.network.named_parameters():
                weight.copy_(mixed[name])
        update = Update(mix(updates, row, self.rank), mix(buffers, row, self.rank), 1)
        self.server.step(self.round, {self.rank: update})

    def _record(self, messages: Mapping[int, Mapping[str, Tensor]]) -> None:
        """The curious participant writes down what its first neighbour after it sent, just as a curious server would."""
        curiosity = self.curiosity
        if curiosity is None or self.rank != curiosity.participant or not messages:
            return
        if self.round in curiosity.rounds:
            victim = min(messages, key=lambda one: (one < self.rank, one))
            update, state = part_of(messages[victim], "update"), part_of(messages[victim], "state")
            Recording(self.plan, self.round, (victim,), update, state).write(self.folder / RECORDED)

    def _mean(self) -> dict[str, Tensor]:
        """At participant 0 the mean of all weights; the others only send theirs."""
        own = {name: tensor.clone() for name, tensor in self.server.network.state_dict().items()}
        if self.rank != 0:
            self.group.send(0, own)
            return own
        # One after the other: everybody's weights at the same time may not fit into memory.
        mean = {name: tensor.clone() for name, tensor in own.items()}
        for other in self.group.others:
            theirs = self.group.receive(other, own)
            if are_finite(theirs):
                add_difference(mean, own, theirs, 1 / self.group.size)
            else:  # as if it had the weights of participant 0
                self._refuse(other, "weights")
        return mean

    def _refuse(self, one: int, what: str) -> None:
        """Say that something of another participant does not count; only participant 0 writes the log of all."""
        said = f"the {what} of participant {one} is refused (not finite); went on without"
        if self.rank == 0:
            self.note(said)
        logger.warning("participant %d, round %d: %s", self.rank, self.round, said)

    def _network(self, state: Mapping[str, Tensor]) -> nn.Module:
        network = copy.deepcopy(self.server.network)
        network.load_state_dict(state)
        return network

    def _result(self, mean: Mapping[str, Tensor]) -> PeerResult:
        own = dict(self.server.network.named_parameters())
        squares = sum(
            float((weight.detach().cpu().double() - mean[name].cpu()).square().sum()) for name, weight in own.items()
        )
        distance = (squares / sum(weight.numel() for weight in own.values())) ** 0.5
        accuracy = self.accuracy(self.server.network)
        return PeerResult(self.rank, len(self.participant.indices), accuracy, len(self.dataset.test), distance)

    def _checkpoints(self) -> dict[int, Path]:
        """What this participant kept, by round."""
        found = {}
        for path in (self.folder / CHECKPOINTS).glob(f"participant-{self.rank:04}-round-*.safetensors"):
            if match := re.fullmatch(r"participant-[0-9]+-round-([0-9]{1,9})", path.stem):
                found[int(match[1])] = path
        return found

    def _resume(self) -> None:
        """Go on after the last round that everybody has a checkpoint of."""
        own = self._checkpoints()
        introduction = {"settings": self.settings.fingerprint(self.dataset), "rounds": sorted(own)}
        texts = self.group.gather_texts("start", json.dumps(introduction))
        introductions = [_read_introduction(other, text) for other, text in enumerate(texts)]
        for other, theirs in enumerate(introductions):
            if theirs["settings"] != introductions[0]["settings"]:
                raise GradveilError(
                    f"participant {other} has another plan, topology, data or version than participant 0; use the same for all"
                )
        common = max(set(own).intersection(*(one["rounds"] for one in introductions)), default=0)
        for number, path in own.items():
            if number > common:
                path.unlink()
        if common:
            self.read_checkpoint(own[common], remedy="go on from an earlier round")

    def _note_absences(self, present: set[int]) -> None:
        self.note_missing(self.plan.dropped_participants(self.round))
        if not present:
            self.note("nobody answered; the weights stay as they are")
        if self.curiosity is not None and self.round in self.curiosity.rounds:
            curious = self.curiosity.participant
            if curious not in present or not present.intersection(self.settings.topology.neighbours(curious)):
                self.note(f"curious participant {curious} got no message, so nothing is recorded")


def _read_introduction(other: int, text: str) -> dict[str, Any]:
    """What another participant says of itself; it may be anyone."""
    try:
        found = parse_object(text)
        rounds = found["rounds"]
        if not isinstance(rounds, list) or not all(type(one) is int for one in rounds) or "settings" not in found:
            raise GradveilError("no rounds or no settings")
    except (GradveilError, KeyError) as error:
        raise GradveilError(
            f"participant {other} does not say what it trains ({error}); use gradveil for all"
        ) from error
    return found
