"""What a network is made of, looked up once where it is asked for in every step."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Structure:
    """Parameters and buffers by name, and all layers, in the model's order."""

    parameters: dict[str, nn.Parameter]
    buffers: dict[str, Tensor]
    layers: tuple[nn.Module, ...]
    _kinds: dict[type[nn.Module], tuple[nn.Module, ...]] = field(default_factory=dict)

    def of_kind(self, kind: type[M]) -> tuple[M, ...]:
        """The layers that are of a kind."""
        if kind not in self._kinds:
            self._kinds[kind] = tuple(layer for layer in self.layers if isinstance(layer, kind))
        return self._kinds[kind]  # type: ignore[return-value]


def copy_module(model: M) -> M:
    """A deep copy; of a LightningModule without its trainer, which holds the data."""
    bare = copy.copy(model)
    if "_trainer" in vars(bare):
        vars(bare)["_trainer"] = None
    return copy.deepcopy(bare)


_CACHED: dict[int, Structure] = {}


def structure_of(model: nn.Module) -> Structure:
    """Looked up now, or when a block of `caching_structure` began."""
    return _CACHED.get(id(model)) or Structure(
        dict(model.named_parameters()), dict(model.named_buffers()), tuple(model.modules())
    )


@contextmanager
def caching_structure(model: nn.Module) -> Iterator[None]:
    """Within the block nobody gives the model other layers, parameters or buffers; what is in them may change.

    Walking through all modules takes a noticeable part of a small network's step.
    """
    if id(model) in _CACHED:
        yield
        return
    _CACHED[id(model)] = structure_of(model)
    try:
        yield
    finally:
        del _CACHED[id(model)]
