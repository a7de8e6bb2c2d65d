"""What a participant minimises. A loss travels with its network, so that whoever computes a gradient uses the same."""

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.errors import GradveilError
from gradveil.models.structure import copy_module, structure_of

_ATTRIBUTE = "_gradveil_loss"


@dataclass(frozen=True)
class CrossEntropy:
    """Mean cross entropy of one label per image; `smoothing` spreads that fraction of it evenly over all classes."""

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise GradveilError(f"expected a label smoothing from 0 to below 1, got {self.smoothing:g}")

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean over images of logits (B, classes) for labels int64 (B,) or probabilities (B, classes)."""
        return F.cross_entropy(logits, labels, label_smoothing=self.smoothing)

    def soft_labels(self, scores: Tensor) -> Tensor:
        """Labels of free numbers (..., classes), for an attacker who searches for them."""
        return scores.softmax(-1)

    def hard_labels(self, scores: Tensor) -> Tensor:
        """The labels that such numbers come to."""
        return scores.argmax(-1)

    def __str__(self) -> str:
        return f"smoothing={self.smoothing:g}" if self.smoothing else "cross-entropy"


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Mean binary cross entropy of every class by itself: labels are vectors of 0 and 1, several classes may be there."""

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean over images and classes; labels are (B, classes), or int64 (B,) where each image has one class."""
        if labels.ndim == 1:
            labels = (labels[:, None] == torch.arange(logits.shape[1], device=labels.device)).to(logits)
        return F.binary_cross_entropy_with_logits(logits, labels)

    def soft_labels(self, scores: Tensor) -> Tensor:
        return scores.sigmoid()

    def hard_labels(self, scores: Tensor) -> Tensor:
        return (scores > 0).to(scores)

    def __str__(self) -> str:
        return "bce"


Loss = CrossEntropy | BinaryCrossEntropy
CROSS_ENTROPY = CrossEntropy()


def with_loss(model: nn.Module, loss: Loss | str) -> nn.Module:
    """A copy of `model` whose gradients are those of another loss: `bce` (multi-label) or `smoothing=0.1`.

    model = with_loss(my_model, "bce")
    gradients = share(model, Batch(images, targets))  # targets are floats (B, classes)
    """
    copied = copy_module(model)
    setattr(copied, _ATTRIBUTE, parse_loss(loss) if isinstance(loss, str) else loss)
    return copied


def loss_function(model: nn.Module) -> Loss:
    """The loss that a model is trained with; cross entropy where nobody said otherwise."""
    found = (vars(layer)[_ATTRIBUTE] for layer in structure_of(model).layers if _ATTRIBUTE in vars(layer))
    return next(found, CROSS_ENTROPY)


def parse_loss(text: str) -> Loss:
    """`cross-entropy`, `smoothing=0.1` (label smoothing) or `bce`."""
    if text == "cross-entropy":
        return CROSS_ENTROPY
    if text == "bce":
        return BinaryCrossEntropy()
    match = re.fullmatch(r"smoothing=(\d*\.?\d+(?:e-?\d+)?)", text)
    if match is None:
        raise GradveilError(f"expected loss cross-entropy, smoothing=0.1 or bce, got {text!r}")
    return CrossEntropy(float(match[1]))
