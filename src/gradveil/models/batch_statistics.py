"""What batch norm saw of a batch: mean and variance of what went into every layer.

Who sends along the whole state of a network gives them away: the running statistics move towards them by a known fraction.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradveil.errors import GradveilError

# Name of a batch norm layer -> mean and unbiased variance (channels,) of what went into it.
BatchStatistics = dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Seen:
    """What went into a layer of batch norm in one pass."""

    name: str
    layer: _BatchNorm
    values: Tensor


@contextmanager
def watching_inputs(model: nn.Module) -> Iterator[list[Seen]]:
    """What goes into the layers of batch norm, pass after pass, while the model runs."""
    seen: list[Seen] = []

    def watch(name: str, layer: _BatchNorm) -> torch.utils.hooks.RemovableHandle:
        def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen.append(Seen(name, layer, inputs[0]))

        return layer.register_forward_pre_hook(keep)

    hooks = [watch(name, layer) for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def statistics_of(inputs: Sequence[Seen], *, participants: int = 1) -> BatchStatistics:
    """Mean and variance per layer at work, as running statistics tell them: later local steps count more, participants alike."""
    found: dict[str, list[Seen]] = {}
    for one in inputs:
        if one.layer.training:
            found.setdefault(one.name, []).append(one)
    statistics: BatchStatistics = {}
    for name, passes in found.items():
        dims = [dim for dim in range(passes[0].values.ndim) if dim != 1]
        weights = _weights(passes[0].layer.momentum, len(passes) // participants) * participants
        pairs = [(weight, one.values) for weight, one in zip(weights, passes, strict=True)]
        mean = torch.stack([weight * values.mean(dims) for weight, values in pairs]).sum(0) / participants
        variance = torch.stack([weight * values.var(dims) for weight, values in pairs]).sum(0) / participants
        statistics[name] = mean, variance
    return statistics


def sent_statistics(
    model: nn.Module, before: Mapping[str, Tensor], after: Mapping[str, Tensor], *, steps: int = 1
) -> BatchStatistics:
    """The statistics behind the state dict of `model` that a participant sends back after `steps` local steps.

    They are weighted as `statistics_of` weighs them. A layer whose running statistics stayed as they were has seen nothing.
    """
    if steps < 1:
        raise GradveilError(f"expected 1 local step or more, got {steps}")
    found: BatchStatistics = {}
    for name, layer in model.named_modules():
        if not isinstance(layer, _BatchNorm) or layer.running_mean is None:
            continue
        kept = _kept(layer, before[f"{name}.num_batches_tracked"], steps)
        buffers = (f"{name}.running_mean", f"{name}.running_var")
        pairs = [(before[buffer].cpu().double(), after[buffer].cpu().double()) for buffer in buffers]
        if not all(torch.equal(old, new) for old, new in pairs):
            mean, variance = (((new - kept * old) / (1 - kept)).float() for old, new in pairs)
            found[name] = mean, variance
    return found


def _weights(momentum: float | None, steps: int) -> list[float]:
    """How much every step of a participant counts; they sum to 1."""
    kept = [1.0 if momentum is None else (1 - momentum) ** (steps - 1 - step) for step in range(steps)]
    return [one / sum(kept) for one in kept]


def _kept(layer: _BatchNorm, batches: Tensor, steps: int) -> float:
    """How much of the statistics before is left after so many steps; without a momentum they are those of all batches."""
    if layer.momentum is None:
        return float(batches) / (float(batches) + steps)
    return float((1 - layer.momentum) ** steps)
