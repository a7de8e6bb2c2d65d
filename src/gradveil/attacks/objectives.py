"""How far two gradients are apart; an attack makes this small."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.types import Gradients

# (the guess's gradient, the shared gradient), one tensor per parameter -> scalar.
Objective = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]
# The shared gradient -> a factor per tensor, or per entry, that both gradients are multiplied by before they are compared.
Weighing = Callable[[Gradients], Gradients]


def cosine_distance(guess: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """1 - <g, g'> / (|g| |g'|) over all parameters together (Geiping et al., 2020)."""
    product = torch.stack([(a * b).sum() for a, b in zip(guess, target, strict=True)]).sum()
    return 1 - product / (_norm(guess) * _norm(target)).clamp_min(1e-30)


def l2_distance(guess: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """Sum of squared differences (Zhu et al., 2019)."""
    return torch.stack([(a - b).square().sum() for a, b in zip(guess, target, strict=True)]).sum()


def l1_distance(guess: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """Sum of absolute differences."""
    return torch.stack([(a - b).abs().sum() for a, b in zip(guess, target, strict=True)]).sum()


@dataclass(frozen=True)
class Layers:
    """A weight for every parameter whose name begins with a given one, 1 for the others; 0 leaves a layer out."""

    weights: tuple[tuple[str, float], ...]

    def __call__(self, gradients: Gradients) -> Gradients:
        for prefix, _ in self.weights:
            if not any(_is_inside(name, prefix) for name in gradients):
                raise GradveilError(f"the model has no layer {prefix!r}; its parameters are {', '.join(gradients)}")
        return {name: torch.tensor(self._weight(name), device=value.device) for name, value in gradients.items()}

    def _weight(self, name: str) -> float:
        found = 1.0
        for prefix, weight in self.weights:
            if _is_inside(name, prefix):
                found = weight
        return found


@dataclass(frozen=True)
class Survivors:
    """Compare only what was not set to zero: what is left of a pruned gradient."""

    def __call__(self, gradients: Gradients) -> Gradients:
        return {name: (value != 0).to(value.dtype) for name, value in gradients.items()}


def factors(weighings: Sequence[Weighing], gradients: Gradients) -> tuple[Tensor, ...]:
    """The product of all weighings in the order of `gradients`, nothing without any."""
    if not weighings:
        return ()
    found: Mapping[str, Tensor] = weighings[0](gradients)
    for weighing in weighings[1:]:
        more = weighing(gradients)
        found = {name: value * more[name] for name, value in found.items()}
    if not any(bool(value.any()) for value in found.values()):
        raise GradveilError("nothing of the gradient is left to compare: every layer has weight 0 or was pruned away")
    return tuple(found[name] for name in gradients)


def weigh(factors: Sequence[Tensor], gradient: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What of a gradient counts: all of it without `factors`."""
    if not factors:
        return tuple(gradient)
    return tuple(factor * tensor for factor, tensor in zip(factors, gradient, strict=True))


def _is_inside(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def _norm(gradient: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.square().sum() for tensor in gradient]).sum().sqrt()
