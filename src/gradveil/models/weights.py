"""Model weights in safetensors files that say what they are."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from gradveil.errors import GradveilError
from gradveil.io.tensors import opening, read_facts, write_tensors
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
        if len(card.image_shape) != 3:
            raise ValueError(f"images have 3 sides, got {len(card.image_shape)}")
    except ValueError as error:
        raise GradveilError(f"{path}: its model card is damaged ({error})") from error
    return card


def find_card(path: Path) -> ModelCard | None:
    """The card of a weights file, or None of a plain safetensors file."""
    with opening(path, WANTED) as file:
        named = FORMAT in (file.metadata() or {})
    return read_card(path) if named else None


def fits(network: nn.Module, other: nn.Module) -> bool:
    """Whether the weights of one fit the other."""
    shapes = [{name: tensor.shape for name, tensor in one.state_dict().items()} for one in (network, other)]
    return shapes[0] == shapes[1]


def load_state(network: nn.Module, path: Path) -> None:
    """Fill `network` with the tensors of any safetensors file whose names and shapes fit."""
    expected = network.state_dict()
    state: dict[str, torch.Tensor] = {}
    with opening(path, WANTED) as file:
        names = set(file.keys())
        if names != set(expected):
            odd = sorted(names ^ set(expected))[0]
            where = "missing from" if odd in expected else "not expected in"
            raise GradveilError(f"{path}: does not fit the model: {odd!r} is {where} the file")
        for name, tensor in expected.items():
            shape = tuple(file.get_slice(name).get_shape())
            if shape != tuple(tensor.shape):
                raise GradveilError(
                    f"{path}: does not fit the model: {name!r} is {shape}, expected {tuple(tensor.shape)}"
                )
            state[name] = file.get_tensor(name)
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise GradveilError(f"{path}: {name!r} holds NaN or infinite values, expected finite weights")
    network.load_state_dict(state)
