"""What trainings with and without a server have in common: the loop over rounds, and what it writes into its folder."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor, nn

from gradveil.devices import Device
from gradveil.errors import GradveilError
from gradveil.federated.curiosity import Curiosity
from gradveil.federated.folder import LOG, WEIGHTS
from gradveil.federated.history import HistoryRow, write_history
from gradveil.federated.participant import network_of
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.server import Server, accuracy_of
from gradveil.io.files import write_text
from gradveil.io.tensors import read_facts, read_tensors, write_tensors
from gradveil.io.typed_json import from_fields
from gradveil.models.weights import ModelCard, save_weights
from gradveil.progress import Advance
from gradveil.types import Dataset

CHECKPOINT_FORMAT = "gradveil-round-2"
# How often accuracy is measured on the way.
EVALUATIONS = 20


@dataclass(frozen=True)
class CheckpointFacts:
    """What stands in a checkpoint beside its tensors, which are called `tensors`."""

    plan: str
    round: int
    history: tuple[HistoryRow, ...]
    missing: dict[str, tuple[int, ...]]
    log: tuple[str, ...]
    tensors: tuple[str, ...]

    def check(self, plan: FederatedPlan, tensors: Mapping[str, Tensor]) -> None:
        """Refuse what cannot have been written in a training of this plan."""
        if self.plan != plan.to_json():
            raise ValueError("it is of another plan")
        if not 0 <= self.round <= plan.rounds:
            raise ValueError(f"it is of round {self.round}, the plan has {plan.rounds}")
        if odd := sorted(set(self.tensors) ^ set(tensors)):
            raise ValueError(f"{odd[0]} is {'missing' if odd[0] in self.tensors else 'not part of it'}")
        if any(not one.isfinite().all() for one in tensors.values() if one.is_floating_point()):
            raise ValueError("its weights are no numbers")


class Training(ABC):
    """A training that stands before round `round`.

    With a server there is one. Without a server every participant has its own, and that of participant 0 writes the files.
    """

    def __init__(
        self,
        plan: FederatedPlan,
        dataset: Dataset,
        folder: Path,
        curiosity: Curiosity | None,
        evaluations: int,
        device: Device,
    ) -> None:
        self.plan, self.dataset, self.folder, self.curiosity = plan, dataset, folder, curiosity
        self.measured_rounds = measured_rounds(plan, curiosity, evaluations)
        self.server = Server(plan, device.place(network_of(plan, dataset)))
        self.weights = folder / WEIGHTS
        self.round = 0
        self.history: list[HistoryRow] = []
        # Round -> participants who were chosen and did not answer.
        self.missing: dict[int, tuple[int, ...]] = {}
        self.log: list[str] = []

    def train(self, advance: Advance) -> None:
        """Train all rounds that are left, and write the result."""
        advance(self.round)
        while self.round < self.plan.rounds:
            self._measure()
            self.train_round()
            self.round += 1
            advance(1)
            if self.checkpoint_is_due() and self.round < self.plan.rounds:
                self.save_checkpoint()
        self._measure()
        self.save_checkpoint()
        self.finish()

    @abstractmethod
    def train_round(self) -> None:
        """Change the weights as round `round` does."""

    @abstractmethod
    def network_to_measure(self) -> nn.Module | None:
        """The network whose accuracy counts; None where somebody else measures it."""

    @abstractmethod
    def checkpoint_is_due(self) -> bool:
        """Whether it is time for a checkpoint."""

    @abstractmethod
    def save_checkpoint(self) -> None:
        """Keep what going on from here needs."""

    @abstractmethod
    def finish(self) -> None:
        """Write what the training ends with."""

    def write_result(self, network: nn.Module) -> None:
        """Write `history.csv`, and `network` as `last.safetensors`."""
        plan, accuracy = self.plan, self.history[-1].accuracy
        card = ModelCard.of(
            plan.model, self.dataset, defense=plan.defense, seed=plan.seed, epochs=plan.rounds, accuracy=accuracy
        )
        write_history(self.folder, self.history)
        save_weights(self.weights, network, card)

    def accuracy(self, network: nn.Module) -> float:
        """The fraction of the test images that `network` gets right."""
        return accuracy_of(network, self.dataset.test, seed=self.plan.seed)

    def note(self, text: str) -> None:
        """Add a line about this round to the log."""
        self.log.append(f"round {self.round}: {text}")
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{self.log[-1]}\n")

    def note_missing(self, participants: Sequence[int]) -> None:
        """Log who was chosen for this round and did not answer."""
        if participants:
            self.missing[self.round] = tuple(participants)
            self.note(f"no answer from participant {', '.join(map(str, participants))}; went on without")

    def write_log(self) -> None:
        """Write the log as the checkpoint has it: lines about rounds that are repeated go."""
        write_text(self.folder / LOG, "".join(f"{line}\n" for line in self.log))

    def write_checkpoint(self, path: Path) -> None:
        """Write weights, momentum, accuracies and log into one file."""
        state = self.server.state()
        missing = {str(number): absent for number, absent in self.missing.items()}
        facts = CheckpointFacts(
            self.plan.to_json(), self.round, tuple(self.history), missing, tuple(self.log), tuple(sorted(state))
        )
        write_tensors(path, state, CHECKPOINT_FORMAT, asdict(facts))

    def read_checkpoint(self, path: Path, *, remedy: str) -> None:
        """Go on from what `write_checkpoint` wrote."""
        try:
            facts = from_fields(CheckpointFacts, read_facts(path, "checkpoint", CHECKPOINT_FORMAT))
            tensors = read_tensors(path, "checkpoint")
            facts.check(self.plan, tensors)
            self.server.load(tensors)
            self.round, self.history, self.log = facts.round, list(facts.history), list(facts.log)
            self.missing = {int(number): absent for number, absent in facts.missing.items()}
        except (GradveilError, ValueError) as error:
            raise GradveilError(f"{path}: damaged ({error}); remove it to {remedy}") from error

    def _measure(self) -> None:
        if self.round not in self.measured_rounds:
            return
        network = self.network_to_measure()
        if network is not None and all(row.round != self.round for row in self.history):
            self.history.append(HistoryRow(self.round, self.accuracy(network), len(self.dataset.test)))
            write_history(self.folder, self.history)


def measured_rounds(plan: FederatedPlan, curiosity: Curiosity | None, evaluations: int) -> set[int]:
    """After how many rounds accuracy is measured: `evaluations` times on the way, and where somebody curious looks."""
    count = max(1, min(evaluations, plan.rounds))
    regular = {round(plan.rounds * part / count) for part in range(1, count + 1)}
    return regular | {0} | (set(curiosity.rounds) if curiosity else set())
