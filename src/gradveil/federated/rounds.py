"""The rounds of a collaborative training; a killed one goes on where it was and ends with the same weights."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import nn

from gradveil.defenses.parts import acts
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.folder import CHECKPOINT, LOG, claiming, read_checkpoint, write_checkpoint
from gradveil.federated.history import HistoryRow, write_history
from gradveil.federated.participant import PendingUpdate, Update, network_of, participants_of
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.recordings import RECORDED, forget_recordings, record_updates
from gradveil.federated.server import Server, accuracy_of
from gradveil.io.files import write_text
from gradveil.models.weights import ModelCard, save_weights
from gradveil.progress import Progress, silent
from gradveil.types import Dataset
from gradveil.version import __version__

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
    evaluations: int = 20,
    progress: Progress = silent,
) -> FederatedResult:
    """Train as planned in `folder`: `last.safetensors`, `history.csv`, `recorded/`, and what resuming needs.

    `gather` gets the updates of a round from wherever participants are; without it they are in this process. Accuracy is
    measured `evaluations` times on the way, and in every round the curious server records.
    """
    if curiosity is not None:
        per_round = plan.per_round or plan.participants
        curiosity.check(participants=plan.participants, per_round=per_round, rounds=plan.rounds)
    if gather is None and not (folder / CHECKPOINT).exists() and acts(plan.make_defense(), "client"):
        # Whether such a defense goes with the network shows when it is tried: before anything is written.
        participants_of(plan, dataset.train)[0].contribute(network_of(plan, dataset), 0)
    with claiming(folder, plan, curiosity):
        training = Training(plan, dataset, folder, curiosity, gather or in_process(plan, dataset))
        looks = training.looks(evaluations)
        with progress(f"training {plan.model} with {plan.participants} participants", plan.rounds, "steps") as advance:
            advance(training.round)
            while training.round < plan.rounds:
                training.look(looks)
                training.one_round()
                advance(1)
            training.look(looks)
            training.finish()
    return FederatedResult(plan, tuple(training.history), training.weights, training.missing)


def in_process(plan: FederatedPlan, dataset: Dataset) -> Gather:
    """Participants one after the other in this process: the embedded engine."""
    everybody = participants_of(plan, dataset.train)
    return lambda number, chosen, network: PendingUpdate([everybody[one] for one in chosen], network, number)


class Training:
    """The state of a training between two rounds."""

    def __init__(
        self, plan: FederatedPlan, dataset: Dataset, folder: Path, curiosity: Curiosity | None, gather: Gather
    ) -> None:
        self.plan, self.dataset, self.folder, self.curiosity, self.gather = plan, dataset, folder, curiosity, gather
        self.server = Server(plan, network_of(plan, dataset))
        self.weights = folder / "last.safetensors"
        self.checkpoint = folder / CHECKPOINT
        self.round = 0
        self.history: list[HistoryRow] = []
        self.missing: dict[int, tuple[int, ...]] = {}
        self.log: list[str] = []
        self.saved = time.monotonic()
        if self.checkpoint.is_file():
            self._resume()
        write_text(folder / LOG, "".join(f"{line}\n" for line in self.log))
        forget_recordings(folder, since=self.round)

    def looks(self, evaluations: int) -> set[int]:
        """After how many rounds accuracy is measured."""
        return looks_of(self.plan, self.curiosity, evaluations)

    def look(self, looks: set[int]) -> None:
        """Measure accuracy where that is due and was not done before."""
        if self.round in looks and all(row.round != self.round for row in self.history):
            accuracy = accuracy_of(self.server.network, self.dataset.test, seed=self.plan.seed)
            self.history.append(HistoryRow(self.round, accuracy, len(self.dataset.test)))
            write_history(self.folder, self.history)

    def one_round(self) -> None:
        """Gather updates, let the curious server look, make the step."""
        number, plan = self.round, self.plan
        dropped = plan.dropped(number)
        asked = [one for one in plan.chosen(number) if one not in dropped]
        updates = self.gather(number, asked, self.server.network)
        if absent := tuple(sorted({*dropped, *(one for one in asked if one not in updates)})):
            self.missing[number] = absent
            self._say(f"round {number}: no answer from participant {', '.join(map(str, absent))}; went on without")
        if self.curiosity is not None and number in self.curiosity.rounds:
            updates = dict(updates)  # what is only promised is computed once for the recording and the step
            self._record(updates)
        if updates:
            self.server.step(number, updates)
        else:
            self._say(f"round {number}: nobody answered; the weights stay as they are")
        self.round += 1
        if time.monotonic() - self.saved > CHECKPOINT_SECONDS:
            self._save()

    def finish(self) -> None:
        """Write what the training ends with."""
        self._save()
        save_weights(self.weights, self.server.network, card_of(self.plan, self.dataset, self.history[-1].accuracy))
        write_history(self.folder, self.history)

    def _record(self, updates: Mapping[int, Update]) -> None:
        assert self.curiosity is not None
        groups = self.curiosity.groups(updates)
        if len(groups) < self.curiosity.victims * len(set(self.curiosity.sums)):
            self._say(f"round {self.round}: {len(updates)} answers are too few for all that was to be recorded")
        for participants in groups:
            record_updates(self.plan, self.round, self.server.network, updates, participants).write(
                self.folder / RECORDED
            )

    def _save(self) -> None:
        facts = {
            "plan": self.plan.to_json(),
            "round": self.round,
            "history": [asdict(row) for row in self.history],
            "missing": {str(number): absent for number, absent in self.missing.items()},
            "log": self.log,
        }
        write_checkpoint(self.checkpoint, self.server, facts)
        self.saved = time.monotonic()

    def _resume(self) -> None:
        try:
            state, facts = read_checkpoint(self.checkpoint)
            self.server.load(state)
            if facts["plan"] != self.plan.to_json():
                raise ValueError("it is of another plan")
            self.round = int(facts["round"])
            self.history = [HistoryRow(**row) for row in facts["history"]]
            self.missing = {int(number): tuple(absent) for number, absent in facts["missing"].items()}
            self.log = [str(line) for line in facts["log"]]
        except (GradveilError, ValueError, KeyError, TypeError) as error:
            raise GradveilError(f"{self.checkpoint}: damaged ({error}); remove it to train from the start") from error

    def _say(self, text: str) -> None:
        logger.warning(text)
        self.log.append(text)
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


def looks_of(plan: FederatedPlan, curiosity: Curiosity | None, evaluations: int) -> set[int]:
    """After how many rounds accuracy is measured: `evaluations` times on the way, and where somebody curious looks."""
    count = max(1, min(evaluations, plan.rounds))
    regular = {round(plan.rounds * part / count) for part in range(1, count + 1)}
    return regular | {0} | (set(curiosity.rounds) if curiosity else set())


def card_of(plan: FederatedPlan, dataset: Dataset, accuracy: float) -> ModelCard:
    """What the weights a plan ends with are."""
    return ModelCard(
        model=plan.model,
        image_shape=dataset.train.image_shape,
        classes=dataset.train.classes,
        dataset=dataset.name,
        seed=plan.seed,
        epochs=plan.rounds,
        accuracy=accuracy,
        defense=plan.defense,
        gradveil=__version__,
    )
