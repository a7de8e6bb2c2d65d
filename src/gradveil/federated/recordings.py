"""What a curious server wrote down: updates in the rounds it chose, with the weights they were computed from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from gradveil.errors import GradveilError
from gradveil.federated.participant import Update
from gradveil.federated.plan import FederatedPlan
from gradveil.federated.server import mean_of
from gradveil.io.tensors import part_of, read_facts, read_tensors, write_tensors
from gradveil.types import Gradients

RECORDED = "recorded"
FORMAT = "gradveil-recording-1"
WANTED = "recording; gradveil federate --curious makes them"


@dataclass(frozen=True)
class Recording:
    """The update of one participant, or only the mean of several (secure aggregation), and the network's state before it.

    No image is in it. Who took which when follows from the plan, and is needed only to judge a reconstruction. The plan holds
    the seed of all random choices, which a real server would not have.
    """

    plan: FederatedPlan
    round: int
    participants: tuple[int, ...]
    update: Gradients
    state: dict[str, Tensor]

    @property
    def name(self) -> str:
        who = "-".join(map(str, self.participants))
        return f"round-{self.round:06}-of-{len(self.participants)}-from-{who[:40]}.safetensors"

    def write(self, folder: Path) -> Path:
        """Write it into `folder`, whole or not at all."""
        tensors = {f"update/{name}": tensor for name, tensor in self.update.items()}
        tensors |= {f"state/{name}": tensor for name, tensor in self.state.items()}
        facts = {"plan": self.plan.to_json(), "round": self.round, "participants": self.participants}
        path = folder / self.name
        write_tensors(path, tensors, FORMAT, facts)
        return path


def record_updates(
    plan: FederatedPlan, number: int, network: nn.Module, updates: Mapping[int, Update], participants: Sequence[int]
) -> Recording:
    """What the server sees of `participants` in this round."""
    chosen = [updates[one] for one in participants]
    mean = mean_of([one.gradients for one in chosen])
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    return Recording(plan, number, tuple(participants), mean, state)


def read_recording(path: Path) -> Recording:
    """A recording from a file that may come from anyone."""
    facts, tensors = read_facts(path, WANTED, FORMAT), read_tensors(path, WANTED)
    try:
        plan = FederatedPlan.from_json(facts["plan"])
        number, participants = facts["round"], tuple(facts["participants"])
        if type(number) is not int or not 0 <= number < plan.rounds:
            raise ValueError(f"round {number!r}, the plan has {plan.rounds}")
        if not participants or not all(type(one) is int and 0 <= one < plan.participants for one in participants):
            raise ValueError(f"participants {participants!r}, the plan has {plan.participants}")
        if len(set(participants)) != len(participants):
            raise ValueError(f"participants {participants!r}, each counts once")
    except (ValueError, KeyError, TypeError, GradveilError) as error:
        raise GradveilError(f"{path}: not a readable recording ({error})") from error
    update = {name: tensor.float() for name, tensor in part_of(tensors, "update").items()}
    return Recording(plan, number, participants, update, part_of(tensors, "state"))


def remove_recordings(folder: Path, *, since: int) -> None:
    """Remove the recordings of rounds that are about to be repeated: others may answer this time."""
    for path in recordings_in(folder):
        if int(path.name.split("-")[1]) >= since:
            path.unlink()


def recordings_in(folder: Path) -> list[Path]:
    """The recordings of a run folder, earliest rounds first."""
    return sorted((folder / RECORDED).glob("round-[0-9][0-9][0-9][0-9][0-9][0-9]-*.safetensors"))
