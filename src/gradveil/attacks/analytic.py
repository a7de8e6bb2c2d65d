"""Closed forms: what fully connected layers, and patch embeddings (see `patches`), give away without any search.

For z = W x + b and any loss, dL/dW = (dL/dz) x^T and dL/db = dL/dz: each row of the weight's gradient is the input times a
number, and that number is the bias's gradient. The input of one image is read off exactly (Geiping et al., 2020, proposition
3.1). Without a bias dL/dz comes from the layer behind, whose own input is known by then: dL/dz = act'(z) W_next^T dL/dz_next.
Of several images each row shows a mixture.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradveil.attacks.attack import Attack, LabelKnowledge, OnIteration
from gradveil.attacks.evidence import Evidence
from gradveil.attacks.labels import read_labels
from gradveil.attacks.patches import find_patch_embedding, read_patches
from gradveil.attacks.reconstruction import Ending, Reconstruction
from gradveil.errors import GradveilError
from gradveil.models.normalizing import Normalize, to_pixels
from gradveil.types import Gradients

# What does not change the numbers on their way to the first layer.
_TRANSPARENT = (nn.Flatten, nn.Identity, nn.Dropout, Normalize)
# An activation's output -> its slope there.
Slope = Callable[[Tensor], Tensor]
_SLOPES: dict[type[nn.Module], Slope] = {
    nn.ReLU: lambda out: (out > 0).to(out.dtype),
    nn.Sigmoid: lambda out: out * (1 - out),
    nn.Tanh: lambda out: 1 - out.square(),
    nn.Identity: torch.ones_like,
    nn.Dropout: torch.ones_like,
}


@dataclass(frozen=True)
class ClosedForm(Attack):
    """Read the images off the first layer of a model that begins with a fully connected one; exact for a single image.

    So it is for a vision transformer with learned positions. The `distance` of the result is the fraction of that layer's
    gradient which one image cannot explain.

    Of a batch it reads as many rows as there are images, those with the largest factors; of a transformer a mixture. Models that
    begin otherwise are refused with the layer that is in the way.
    """

    labels: LabelKnowledge = "known"
    name: str = "analytic"

    def __post_init__(self) -> None:
        if self.labels == "joint":
            raise GradveilError("a closed form searches for nothing: expected labels known or read, got joint")

    def __call__(self, evidence: Evidence, *, seed: int = 0, on_iteration: OnIteration | None = None) -> Reconstruction:
        embedding = find_patch_embedding(evidence)
        if embedding is not None:
            image, rest = read_patches(evidence, embedding)
            images = image.expand(evidence.images, -1, -1, -1)
        else:
            images, rest = _read_first_layer(evidence)
        images = to_pixels(evidence.model, images).clamp(0, 1)
        labels = read_labels(evidence, seed=seed) if evidence.labels is None else evidence.labels
        ended: Ending = "matched" if rest < 1e-3 else "iterations"
        return Reconstruction(images, labels, rest, ended=ended)


def _read_first_layer(evidence: Evidence) -> tuple[Tensor, float]:
    rows = layer_inputs(evidence.model, evidence.gradients)[0]
    expected = math.prod(evidence.image_shape)
    if rows.shape[1] != expected:
        raise GradveilError(f"no closed form: expected {expected} inputs of the first layer, got {rows.shape[1]}")
    rows = rows[torch.arange(evidence.images) % len(rows)]
    return rows.reshape(evidence.images, *evidence.image_shape), first_layer_rest(evidence, rows[0])


def layer_inputs(model: nn.Module, gradients: Gradients) -> list[Tensor]:
    """Readings of the inputs of the model's leading fully connected layers, first layer first, each (rows, features).

    The rows are ordered by how far they can be trusted; for a single image all agree.
    """
    found: list[Tensor] = []
    behind: Tensor | None = None  # dL/d(what the layer's activation puts out)
    for name, layer, slope in reversed(_leading_layers(model)):
        if f"{name}.weight" not in gradients:
            raise GradveilError(f"no closed form: layer {name!r} is not trained, so its gradient is not shared")
        if f"{name}.bias" in gradients:
            factor = gradients[f"{name}.bias"]
        elif behind is not None:
            factor = behind * slope(found[0][0])
        else:
            raise GradveilError(f"no closed form: no layer from {name!r} on has a bias")
        if not bool(factor.any()):
            raise GradveilError(f"no closed form: the gradient of layer {name!r} is zero")
        # The rows with the largest factors are those that rounding hurts least.
        rows = factor.abs().argsort(descending=True)[: int((factor != 0).sum())]
        found.insert(0, gradients[f"{name}.weight"][rows] / factor[rows, None])
        behind = layer.weight.detach().T @ factor
    return found


def first_layer_rest(evidence: Evidence, row: Tensor) -> float:
    """The fraction of the first layer's gradient that one image, read as `row`, does not explain."""
    weight = evidence.gradients[f"{_leading_layers(evidence.model)[0][0]}.weight"]
    return unexplained(weight, weight @ row / row.square().sum(), row)


def unexplained(weight: Tensor, factor: Tensor, row: Tensor) -> float:
    """The fraction of a weight's gradient (out, in) that is not `factor` (out,) times `row` (in,): that of one image is."""
    return float((weight - torch.outer(factor, row)).norm() / weight.norm().clamp_min(1e-30))


def _leading_layers(model: nn.Module) -> list[tuple[str, nn.Linear, Slope]]:
    """The fully connected layers a model begins with, up to the first that has a bias, each with its activation's slope."""
    layers: list[tuple[str, nn.Linear, Slope]] = []
    for name, module in model.named_modules():
        if any(module.children()) or (not layers and isinstance(module, _TRANSPARENT)):
            continue
        if isinstance(module, nn.Linear):
            layers.append((name, module, torch.ones_like))
            if module.bias is not None:
                return layers
        elif layers and type(module) in _SLOPES:
            layers[-1] = (*layers[-1][:2], _SLOPES[type(module)])
        else:
            needed = "a fully connected layer" if not layers else "a layer with a bias"
            raise GradveilError(f"no closed form: expected {needed} first, got {type(module).__name__} {name!r}")
    raise GradveilError("no closed form: the model has no fully connected layer with a bias")
