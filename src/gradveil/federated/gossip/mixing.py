"""Sums over neighbours: what a participant makes of the messages it got and of its own."""

from collections.abc import Mapping
from fractions import Fraction

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]


def mix(of: Mapping[int, Tensors], row: Mapping[int, Fraction], own: int) -> dict[str, Tensor]:
    """sum_j W_ij x_j, added up in the order of `row`; of whole numbers (batch norm counts batches) one's own."""
    sums = {}
    for name, mine in of[own].items():
        if not mine.is_floating_point():
            sums[name] = mine
            continue
        sums[name] = torch.zeros_like(mine)
        for one, weight in row.items():
            sums[name].add_(of[one][name], alpha=float(weight))
    return sums


def mix_weights(of: Mapping[int, Tensors], row: Mapping[int, Fraction], own: int) -> dict[str, Tensor]:
    """The same sum as x_i + sum_j W_ij (x_j - x_i): where all agree already, rounding moves nobody."""
    sums = {name: mine.clone() for name, mine in of[own].items()}
    for one, weight in row.items():
        if one != own:
            add_difference(sums, of[own], of[one], float(weight))
    return sums


def add_difference(sums: Tensors, own: Tensors, theirs: Tensors, weight: float) -> None:
    """Add `weight` times (`theirs` - `own`) to `sums`, in place; whole numbers stay."""
    for name, total in sums.items():
        if total.is_floating_point():
            total.add_(theirs[name] - own[name], alpha=weight)
