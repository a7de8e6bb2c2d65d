"""The rounds of a collaborative training; a killed one goes on where it was and ends with the same weights."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from gradveil.defenses.parts import acts
from gradveil.devices import CPU, Device
from gradveil.federated.checking import MOST_IMAGES, RefusedUpdate, check_update
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.folder import CHECKPOINT, SETTINGS, claiming
from gradveil.federated.history import HistoryRow
from gradveil.federated.participant import PendingUpdates, Update, network_of, participants_of
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.recordings import RECORDED, record_updates, remove_recordings
from gradveil.federated.training import EVALUATIONS, Training
from gradveil.io.locks import working_alone
from gradveil.progress import Progress, silent
from gradveil.types import Dataset

# (round, participants, network with the weights they start from) -> the updates of those who answered.
Gather = Callable[[int, Sequence[int], nn.Module], Mapping[int, Update]]

logger = logging.getLogger(__name__)

# Seconds of work that a kill may cost.
CHECKPOINT_SECONDS = 10.0


@dataclass(frozen=True)
class FederatedResult:
    """A finished training: how accuracy went, where the weights are, and who was missing when."""

    plan: FederatedPlan
    history: tuple[HistoryRow, ...]
    weights: Path
    # Round -> participants who were chosen and did not answer.
    missing: dict[int, tuple[int, ...]]


def federate(
    plan: FederatedPlan,
    dataset: Dataset,
    folder: Path,
    *,
    curiosity: Curiosity | None = None,
    gather: Gather | None = None,
    evaluations: int = EVALUATIONS,
    device: Device = CPU,
    progress: Progress = silent,
) -> FederatedResult:
    """Train as planned in `folder`: `last.safetensors`, `history.csv`, `recorded/`, and what resuming needs.

    `gather` gets the updates of a round from wherever participants are. Without it they are in this process. Accuracy is
    measured `evaluations` times on the way, and in every round that the curious server records. The server computes on
    `device`, and so do participants in this process.
    """
    if curiosity is not None:
        per_round = plan.per_round or plan.participants
        curiosity.check(participants=plan.participants, per_round=per_round, rounds=plan.rounds)
    if gather is None and not (folder / CHECKPOINT).exists() and acts(plan.make_defense(), "client"):
        # Whether such a defense goes with the network shows when it is tried: before anything is written.
        participants_of(plan, dataset.train)[0].contribute(network_of(plan, dataset), 0)
    with (
        claiming(folder, plan, curiosity, device=device),
        working_alone(folder / SETTINGS),
        device.computing("--batch"),
    ):
        updates = gather or in_process(plan, dataset)
        training = ServerTraining(plan, dataset, folder, curiosity, evaluations, updates, device)
        with progress(f"training {plan.model} with {plan.participants} participants", plan.rounds, "steps") as advance:
            training.train(advance)
    return FederatedResult(plan, tuple(training.history), training.weights, training.missing)


def in_process(plan: FederatedPlan, dataset: Dataset) -> Gather:
    """Participants one after the other in this process: the embedded engine."""
    everybody = participants_of(plan, dataset.train)
    return lambda number, chosen, network: PendingUpdates([everybody[one] for one in chosen], network, number)


class ServerTraining(Training):
    """A training whose updates `gather` brings to one server."""

    def __init__(
        self,
        plan: FederatedPlan,
        dataset: Dataset,
        folder: Path,
        curiosity: Curiosity | None,
        evaluations: int,
        gather: Gather,
        device: Device,
    ) -> None:
        super().__init__(plan, dataset, folder, curiosity, evaluations, device)
        self.gather = gather
        self.checkpoint = folder / CHECKPOINT
        self.saved = time.monotonic()
        if self.checkpoint.is_file():
            self.read_checkpoint(self.checkpoint, remedy="train from the start")
        self.write_log()
        remove_recordings(folder, since=self.round)

    def train_round(self) -> None:
        """Gather updates, let the curious server look, make the step."""
        number, plan = self.round, self.plan
        dropped = plan.dropped_participants(number)
        asked = [one for one in plan.chosen_participants(number) if one not in dropped]
        updates = self.gather(number, asked, self.server.network)
        self.note_missing(sorted({*dropped, *(one for one in asked if one not in updates)}))
        if self.curiosity is not None and number in self.curiosity.rounds:
            updates = dict(updates)  # a pending update is computed once, for the recording and the step
            self._record(self.curiosity, {one: update for one, update in updates.items() if self._fits(update)})
        refused = self.server.step(number, updates) if updates else {}
        for one, why in refused.items():
            self.note(f"the update of participant {one} is refused ({why}); went on without")
        if len(refused) == len(updates):
            self.note(f"{'nobody answered' if not updates else 'nobody is left'}; the weights stay as they are")

    def _fits(self, update: Update) -> bool:
        try:
            check_update(update, self.server.network, most=self.plan.batch or MOST_IMAGES)
        except RefusedUpdate:
            return False
        return True

    def network_to_measure(self) -> nn.Module:
        return self.server.network

    def checkpoint_is_due(self) -> bool:
        return time.monotonic() - self.saved > CHECKPOINT_SECONDS

    def save_checkpoint(self) -> None:
        self.write_checkpoint(self.checkpoint)
        self.saved = time.monotonic()

    def finish(self) -> None:
        self.write_result(self.server.network)

    def note(self, text: str) -> None:
        """Add a line about this round to the log, and warn whoever watches."""
        super().note(text)
        logger.warning(self.log[-1])

    def _record(self, curiosity: Curiosity, updates: Mapping[int, Update]) -> None:
        groups = curiosity.groups(updates)
        if len(groups) < curiosity.victims * len(set(curiosity.sums)):
            self.note(f"{len(updates)} answers are too few for all that was to be recorded")
        for participants in groups:
            recording = record_updates(self.plan, self.round, self.server.network, updates, participants)
            recording.write(self.folder / RECORDED)
