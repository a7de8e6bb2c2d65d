"""Layers that draw at random in every pass, and layers whose input adds to the loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gradveil.models.structure import structure_of
from gradveil.randomness import generator

# A shape -> standard normal numbers of that shape, on the CPU or where they are needed.
NoiseSource = Callable[[torch.Size], Tensor]


class PenalisedLayer(nn.Module, ABC):
    """A layer whose input costs something: `penalty` is added to the loss of whoever trains the network."""

    @abstractmethod
    def penalty(self, x: Tensor) -> Tensor:
        """A scalar, from what goes into the layer."""


class StochasticLayer(PenalisedLayer):
    """A layer that draws standard normal numbers in every pass, in training and in evaluation alike.

    The n-th draw is a function of the seed and n; `drawing` lets somebody else say what is drawn. Nothing of it is in the
    state dict.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.drawn = 0
        self.source: NoiseSource | None = None

    def draw(self, like: Tensor) -> Tensor:
        """Numbers of the shape, type and place of `like`."""
        if self.source is not None:
            return self.source(like.shape).to(like)
        self.drawn += 1
        return torch.randn(like.shape, generator=generator(self.seed, "draw", self.drawn)).to(like)


def stochastic_layers(model: nn.Module) -> dict[str, StochasticLayer]:
    """The layers that draw, by name, in the model's order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, StochasticLayer)}


@contextmanager
def drawing(model: nn.Module, source: NoiseSource) -> Iterator[None]:
    """The model's layers draw from `source`, in the order of the passes; afterwards from where they did before."""
    layers = structure_of(model).of_kind(StochasticLayer)  # type: ignore[type-abstract]
    before = [layer.source for layer in layers]
    for layer in layers:
        layer.source = source
    try:
        yield
    finally:
        for layer, source_before in zip(layers, before, strict=True):
            layer.source = source_before


def normal_source(chance: torch.Generator) -> NoiseSource:
    """Fresh numbers from a CPU generator."""
    return lambda shape: torch.randn(shape, generator=chance)


def replay(values: Tensor) -> NoiseSource:
    """Given numbers, one after the other; they may ask for gradients."""
    at = 0

    def read(shape: torch.Size) -> Tensor:
        nonlocal at
        at += shape.numel()
        return values[at - shape.numel() : at].view(shape)

    return read


@contextmanager
def collecting_penalties(model: nn.Module) -> Iterator[list[Tensor]]:
    """What the layers' inputs cost while the model runs."""
    found: list[Tensor] = []

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, PenalisedLayer)
        found.append(layer.penalty(inputs[0]))

    penalised = structure_of(model).of_kind(PenalisedLayer)  # type: ignore[type-abstract]
    hooks = [layer.register_forward_pre_hook(keep) for layer in penalised]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
