"""What travels between a Flower server and its participants, as Flower's records."""

from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor, nn

from gradveil.client import trainable_parameters
from gradveil.errors import GradveilError
from gradveil.federated.checking import check_images, check_tensors
from gradveil.federated.participant import Update
from gradveil.federated.plan import FederatedPlan


@dataclass(frozen=True)
class UpdateRequest:
    """The server asks a participant for its update in round `number` of `plan`, starting from the weights in `state`."""

    plan: FederatedPlan
    number: int
    state: dict[str, Tensor]

    def to_records(self) -> RecordDict:
        facts = ConfigRecord({"plan": self.plan.to_json(), "round": self.number})
        return RecordDict({"state": ArrayRecord(_contiguous(self.state)), "facts": facts})

    @classmethod
    def from_records(cls, records: RecordDict) -> "UpdateRequest":
        """Read what `to_records` wrote; it may come from anyone."""
        facts, state = records.config_records.get("facts"), records.array_records.get("state")
        if facts is None or state is None:
            raise GradveilError(f"a server of gradveil sends facts and state, got {', '.join(records) or 'nothing'}")
        text, number = facts.get("plan"), facts.get("round")
        if not isinstance(text, str) or type(number) is not int:
            raise GradveilError(f"a server of gradveil sends a plan and a round, got {', '.join(facts) or 'nothing'}")
        return cls(FederatedPlan.from_json(text), number, dict(state.to_torch_state_dict()))


def update_to_records(update: Update) -> RecordDict:
    """An update as Flower's records."""
    return RecordDict(
        {
            "gradients": ArrayRecord(_contiguous(update.gradients)),
            "buffers": ArrayRecord(_contiguous(update.buffers)),
            "facts": ConfigRecord({"images": update.images}),
        }
    )


def update_from_records(records: RecordDict, network: nn.Module, *, most: int) -> Update:
    """Read what `update_to_records` wrote, and check it against `network`: it may come from anyone.

    An update may count for at most `most` images.
    """
    facts = records.config_records.get("facts")
    images = None if facts is None else facts.get("images")
    check_images(images, most=most)
    assert isinstance(images, int)
    names, parameters = trainable_parameters(network)
    return Update(
        _read_tensors(records, "gradients", dict(zip(names, parameters, strict=True))),
        _read_tensors(records, "buffers", dict(network.named_buffers())),
        images,
    )


def _read_tensors(records: RecordDict, part: str, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a record in the order of `expected`, whose names, shapes and types they must have."""
    record = records.array_records.get(part)
    if record is None or set(record) != set(expected):
        raise GradveilError(f"the {part} of an update do not have the names that the model has")
    try:
        found = record.to_torch_state_dict()
    except Exception as error:  # whatever bytes that are no array lead to
        raise GradveilError(f"the {part} of an update cannot be read ({type(error).__name__})") from error
    check_tensors(found, expected, part)
    return {name: found[name].to(like.device) for name, like in expected.items()}


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
