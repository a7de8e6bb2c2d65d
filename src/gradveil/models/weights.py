"""Model weights: safetensors files that say what they are, and what others save."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from gradveil.errors import GradveilError
from gradveil.io.tensors import is_torch_file, opening, read_facts, read_tensors, write_tensors
from gradveil.io.typed_json import from_fields
from gradveil.types import Dataset
from gradveil.version import __version__

FORMAT = "gradveil-weights-2"
WANTED = "weights file; gradveil train makes one"


@dataclass(frozen=True)
class ModelCard:
    """What a weights file holds: enough to build the model again and to know where it came from."""

    model: str
    image_shape: tuple[int, int, int]
    classes: tuple[str, ...]
    dataset: str
    seed: int
    epochs: float
    accuracy: float | None
    defense: str
    gradveil: str

    @classmethod
    def of(
        cls, model: str, dataset: Dataset, *, defense: str, seed: int, epochs: float = 0, accuracy: float | None = None
    ) -> "ModelCard":
        """The card of `model` as this version of gradveil trains it on `dataset`, with the images' shape and classes."""
        train = dataset.train
        return cls(
            model, train.image_shape, train.classes, dataset.name, seed, epochs, accuracy, defense, gradveil=__version__
        )


def save_weights(path: Path, model: nn.Module, card: ModelCard) -> None:
    """Write the model's parameters and buffers with its card; the file appears whole or not at all."""
    write_tensors(path, model.state_dict(), FORMAT, asdict(card))


def read_card(path: Path) -> ModelCard:
    """The card of a weights file, checked field by field: the file may come from anyone."""
    raw = read_facts(path, WANTED, FORMAT)
    try:
        card = from_fields(ModelCard, raw)
        if min(card.image_shape) < 1:
            raise ValueError(f"images have sides above 0, got {card.image_shape}")
    except ValueError as error:
        raise GradveilError(f"{path}: its model card is damaged ({error})") from error
    return card


def find_card(path: Path) -> ModelCard | None:
    """The card of a weights file, or None of plain weights: of a safetensors file without one, or a `torch.save` file."""
    if is_torch_file(path):
        return None
    with opening(path, WANTED) as file:
        named = FORMAT in (file.metadata() or {})
    return read_card(path) if named else None


def fits(network: nn.Module, other: nn.Module) -> bool:
    """Whether the weights of one fit the other."""
    shapes = [{name: tensor.shape for name, tensor in one.state_dict().items()} for one in (network, other)]
    return shapes[0] == shapes[1]


def load_state(network: nn.Module, path: Path) -> None:
    """Fill `network` with the tensors of a file whose names and shapes fit: safetensors, a state dict, a Lightning checkpoint.

    Names may all begin with more than the network's do, as `model.` in a Lightning checkpoint. What does not begin so
    belongs to what was around the network, and is left out.
    """
    expected = network.state_dict()
    state = _without_prefix(read_tensors(path, WANTED), list(expected))
    if set(state) != set(expected):
        odd = sorted(set(state) ^ set(expected))[0]
        where = "missing from" if odd in expected else "not expected in"
        raise GradveilError(
            f"{path}: does not fit the model: {odd!r} is {where} the file; --model says which model it is of"
        )
    for name, tensor in expected.items():
        if state[name].shape != tensor.shape:
            got, wanted = tuple(state[name].shape), tuple(tensor.shape)
            raise GradveilError(f"{path}: does not fit the model: {name!r} is {got}, expected {wanted}")
        if state[name].is_complex() and not tensor.is_complex():
            raise GradveilError(f"{path}: {name!r} holds complex numbers, expected {tensor.dtype}")
        if tensor.is_floating_point():
            # As the network has them: some types are for keeping only, and large numbers of one are infinite in another.
            state[name] = state[name].to(tensor.dtype)
        if not bool(torch.isfinite(state[name]).all()):
            raise GradveilError(f"{path}: {name!r} holds NaN or infinite values, expected finite weights")
    network.load_state_dict(state)


def _without_prefix(state: dict[str, torch.Tensor], names: list[str]) -> dict[str, torch.Tensor]:
    """The tensors below the shortest prefix below which all of `names` are, without it; as they are where there is none."""
    found = [name.removesuffix(names[0]) for name in state if name.endswith(names[0])] if names else []
    for prefix in sorted(found, key=len):
        if all(prefix + name in state for name in names):
            return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    return state
