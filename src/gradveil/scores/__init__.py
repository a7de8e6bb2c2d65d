"""Scores that predict, without attacking or training, what a policy does for privacy and for accuracy (Gao et al., 2021)."""

from dataclasses import dataclass

import torch
from torch import nn

from gradveil.errors import GradveilError
from gradveil.progress import Advance, ignore
from gradveil.scores import reference
from gradveil.scores.estimate import Estimate
from gradveil.transforms import Policy
from gradveil.types import ImageSet, to_unit

__all__ = ["Estimate", "Scorer", "Scores"]

# The first test images belong to the attacks; a score that had seen them would be no prediction.
KEPT_FOR_ATTACKS = 100


@dataclass(frozen=True)
class Scores:
    """Privacy (S_pri, lower is more private) and accuracy (S_acc, higher is better) of one policy."""

    privacy: Estimate
    accuracy: Estimate

    def summary(self) -> dict[str, dict[str, float | int | None]]:
        """The figures as plain data, for JSON."""
        return {"privacy": self.privacy.summary(), "accuracy": self.accuracy.summary()}


@dataclass(frozen=True)
class Scorer:
    """Score policies on the same images, the same noise and the same signs, so that they can be compared pairwise.

    `trained` is the semi-trained model that S_pri looks at, `untrained` the fresh one for S_acc; `held_out` the test images.
    """

    trained: nn.Module
    untrained: nn.Module
    held_out: ImageSet
    images: int = 100
    batches: int = 10
    batch_size: int = 100
    definition: str = "paper"
    seed: int = 0

    def __post_init__(self) -> None:
        available = len(self.held_out) - KEPT_FOR_ATTACKS
        if not 1 <= self.images <= available:
            raise GradveilError(
                f"can score on 1 to {max(available, 0)} images, got {self.images}: "
                f"{len(self.held_out)} test images, the first {KEPT_FOR_ATTACKS} are kept for attacks"
            )

    def __call__(self, policy: Policy, *, advance: Advance = ignore) -> Scores:
        """Both scores of `policy`; `advance` hears of every image of S_pri."""
        return Scores(self.privacy(policy, advance=advance), self.accuracy(policy))

    def privacy(self, policy: Policy, *, advance: Advance = ignore) -> Estimate:
        """S_pri of `policy`, with one value per image."""
        indices = _spread(len(self.held_out), self.images)
        chosen = self.held_out.take(indices)
        images = to_unit(policy(chosen.images, seed=self.seed, indices=indices))
        self.trained.eval()
        return reference.privacy(
            self.trained,
            images,
            chosen.labels,
            indices.tolist(),
            definition=self.definition,
            seed=self.seed,
            advance=advance,
        )

    def accuracy(self, policy: Policy) -> Estimate:
        """S_acc of `policy`, with one value per batch."""
        available = len(self.held_out) - KEPT_FOR_ATTACKS
        size = min(self.batch_size, available)
        batches = []
        for number in range(self.batches):
            # Consecutive batches as published; a small test set is gone through again.
            indices = KEPT_FOR_ATTACKS + (number * size + torch.arange(size)) % available
            chosen = self.held_out.take(indices)
            batches.append((to_unit(policy(chosen.images, seed=self.seed, indices=indices)), chosen.labels))
        self.untrained.eval()
        return reference.accuracy(self.untrained, batches, variant="code" if self.definition == "code" else "mean")


def _spread(total: int, count: int) -> torch.Tensor:
    """`count` indices spread evenly over the test images that are not kept for attacks."""
    return KEPT_FOR_ATTACKS + torch.arange(count) * (total - KEPT_FOR_ATTACKS) // count
