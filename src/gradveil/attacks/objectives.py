"""How far two gradients are apart; an attack makes this small."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# (the guess's gradient, the shared gradient), one tensor per parameter -> scalar.
Objective = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]


def cosine_distance(guess: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """1 - <g, g'> / (|g| |g'|) over all parameters together (Geiping et al., 2020)."""
    product = torch.stack([(a * b).sum() for a, b in zip(guess, target, strict=True)]).sum()
    return 1 - product / (_norm(guess) * _norm(target)).clamp_min(1e-30)


def l2_distance(guess: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """Sum of squared differences (Zhu et al., 2019)."""
    return torch.stack([(a - b).square().sum() for a, b in zip(guess, target, strict=True)]).sum()


def _norm(gradient: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.square().sum() for tensor in gradient]).sum().sqrt()
