"""The result of an attack."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

# How a run ended: it used up its iterations, stopped getting better, matched the gradient, or blew up.
Ending = Literal["iterations", "plateau", "matched", "diverged"]


@dataclass(frozen=True)
class Trace:
    """How a run went, at some of its iterations: per-parameter cosine with the shared gradient, and the guess as a picture."""

    iterations: tuple[int, ...]
    parameters: tuple[str, ...]
    # (moments, parameters), and uint8 (moments, B, C, H, W).
    similarity: Tensor
    frames: Tensor

    def shallow_and_deep(self) -> tuple[list[float], list[float]]:
        """Mean similarity of the first and the last third of the parameters, moment by moment."""
        third = max(1, len(self.parameters) // 3)
        return self.similarity[:, :third].mean(1).tolist(), self.similarity[:, -third:].mean(1).tolist()


@dataclass(frozen=True)
class Reconstruction:
    """What an attack rebuilt: `images` float (B, C, H, W) in [0, 1] with the `labels` it took for theirs, and how the run went.

    `distance` is the objective at the end (NaN counts as diverged), `history` over the iterations of the winning restart.
    """

    images: Tensor
    labels: Tensor | None
    distance: float
    iterations: int = 1
    restarts: int = 1
    ended: Ending = "iterations"
    restarts_diverged: int = 0
    history: tuple[float, ...] = ()
    trace: Trace | None = None

    @property
    def diverged(self) -> bool:
        """Whether the guess's gradient is no nearer to the shared one than no gradient at all."""
        return self.ended == "diverged"


def cosines(found: tuple[Tensor, ...], target: tuple[Tensor, ...]) -> Tensor:
    """Per-parameter cosine of two gradients; 0 where one of them is zero."""
    pairs = zip(found, target, strict=True)
    return torch.stack([torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0) for a, b in pairs])
