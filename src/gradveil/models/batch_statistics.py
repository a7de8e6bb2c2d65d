"""What batch norm saw of a batch: mean and variance of what went into every layer.

Who sends along the whole state of a network gives them away: the running statistics move towards them by a known fraction.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradveil.errors import GradveilError

# Name of a batch norm layer -> mean and unbiased variance (channels,) of what went into it.
BatchStatistics = dict[str, tuple[Tensor, Tensor]]
# Name of a layer and what went into it, in the order of the passes.
Inputs = list[tuple[str, Tensor]]


@contextmanager
def watching_inputs(model: nn.Module) -> Iterator[Inputs]:
    """What goes into layers of batch norm at work, pass after pass, while the model runs."""
    seen: Inputs = []

    def watch(name: str, layer: _BatchNorm) -> torch.utils.hooks.RemovableHandle:
        def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if layer.training:
                seen.append((name, inputs[0]))

        return layer.register_forward_pre_hook(keep)

    hooks = [watch(name, layer) for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def statistics_of(inputs: Sequence[tuple[str, Tensor]]) -> BatchStatistics:
    """Mean and variance per layer, averaged over passes: over local steps, and over participants."""
    found: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, values in inputs:
        dims = [dim for dim in range(values.ndim) if dim != 1]
        found.setdefault(name, []).append((values.mean(dims), values.var(dims)))
    return {
        name: (torch.stack([mean for mean, _ in each]).mean(0), torch.stack([variance for _, variance in each]).mean(0))
        for name, each in found.items()
    }


def sent_statistics(
    model: nn.Module, before: Mapping[str, Tensor], after: Mapping[str, Tensor], *, steps: int = 1
) -> BatchStatistics:
    """The statistics behind the state dict of `model` that a participant sends back after `steps` local steps."""
    if steps < 1:
        raise GradveilError(f"expected 1 local step or more, got {steps}")
    found: BatchStatistics = {}
    for name, layer in model.named_modules():
        if not isinstance(layer, _BatchNorm) or layer.running_mean is None:
            continue
        kept, moments = _kept(layer, before[f"{name}.num_batches_tracked"], steps), []
        for buffer in ("running_mean", "running_var"):
            old, new = before[f"{name}.{buffer}"].double(), after[f"{name}.{buffer}"].double()
            moments.append(((new - kept * old) / (1 - kept)).float())
        found[name] = (moments[0], moments[1])
    return found


def _kept(layer: _BatchNorm, batches: Tensor, steps: int) -> float:
    """How much of the statistics before is left after so many steps; without a momentum they are those of all batches."""
    if layer.momentum is None:
        return float(batches) / (float(batches) + steps)
    return float((1 - layer.momentum) ** steps)
