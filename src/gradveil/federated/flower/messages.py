"""What travels between a Flower server and its participants, as Flower's records."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor, nn

from gradveil.client import trainable_parameters
from gradveil.errors import GradveilError
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
    if type(images) is not int or not 1 <= images <= most:
        raise GradveilError(f"an update counts for 1 to {most} images, got {images!r}")
    names, parameters = trainable_parameters(network)
    return Update(
        _check_tensors(records, "gradients", dict(zip(names, parameters, strict=True))),
        _check_tensors(records, "buffers", dict(network.named_buffers())),
        images,
    )


def _check_tensors(records: RecordDict, part: str, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a record in the order of `expected`; refused unless they are finite and have its names, shapes and types."""
    record = records.array_records.get(part)
    if record is None or set(record) != set(expected):
        raise GradveilError(f"the {part} of an update do not have the names that the model has")
    found = record.to_torch_state_dict()
    for name, like in expected.items():
        if found[name].shape != like.shape or found[name].dtype != like.dtype:
            raise GradveilError(
                f"{part}: {name} is {found[name].dtype} {tuple(found[name].shape)}, "
                f"the model has {like.dtype} {tuple(like.shape)}"
            )
        if not bool(torch.isfinite(found[name]).all()):
            raise GradveilError(f"{part}: {name} is not finite")
    return {name: found[name].to(like.device) for name, like in expected.items()}


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
