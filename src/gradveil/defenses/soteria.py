"""Soteria: leave the telling features out of one layer's gradient, and the attacker who leaves out that layer."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from gradveil.attacks import Evidence, Inversion
from gradveil.attacks.objectives import Layers
from gradveil.client import Aggregate, Client, batch_norm_mode
from gradveil.defenses.base import Defense
from gradveil.defenses.dp_sgd import PrivateGradient
from gradveil.defenses.pruning import Prune
from gradveil.errors import GradveilError
from gradveil.models.stochastic import drawing
from gradveil.naming import unknown
from gradveil.types import Batch, Gradients

# Pairs of an image and a feature in one backward pass.
AT_ONCE = 256


@dataclass(frozen=True)
class Soteria(Defense):
    """Set the columns of the `ratio` of input features that matter most to a reconstruction to zero in a layer's weight gradient.

    Sun et al., "Soteria: Provable defense against privacy leakage in federated learning from representation perspective", CVPR
    2021. The layer is fully connected: the last one, or those named by `at`. Of its n inputs r_1(x)..r_n(x) the floor(ratio n)
    with the largest |r_i| / ||d r_i / d x||_2 go: the paper's stand-in for how far x has to move to make up for a missing r_i.
    A feature without slope counts 0. For a batch it is the mean over its images, one mask for all of them, with batch norm in
    evaluation mode; with several local steps the mask is that of the weights at their start.

    The published code ranks by the sum of ||d r_i / d x|| / (r_i + 0.1) and takes the smallest: about the same for positive
    features of one image, but dead ones (r_i = 0, nothing to hide) are taken first, and negative ones are misplaced.
    """

    name: ClassVar[str] = "soteria"
    knowledge = "knows which layer is defended and compares the others only"
    ratio: float = 0.4
    at: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.ratio < 1:
            raise GradveilError(f"soteria needs a ratio from 0 to below 1, such as 0.4, got {self.ratio:g}")

    def client(self, client: Client, *, seed: int) -> Client:
        if isinstance(client, PrivateGradient):
            raise GradveilError("soteria after dp-sgd looks at the images again, which voids its proof: use one")
        if isinstance(client, Aggregate):
            return replace(client, client=self.client(client.client, seed=seed))

        def share_masked(model: nn.Module, batch: Batch) -> Gradients:
            masks = {f"{layer}.weight": self.mask(model, batch.images, layer) for layer in self.layers(model)}
            shared = client(model, batch)
            return {name: value * masks[name] if name in masks else value for name, value in shared.items()}

        return share_masked

    def mask(self, model: nn.Module, images: Tensor, layer: str) -> Tensor:
        """0 for every input feature of `layer` that is left out, 1 for the others, (n,)."""
        effects = effect(model, images, layer).mean(0)
        mask = torch.ones_like(effects)
        mask[effects.argsort(descending=True, stable=True)[: Prune(self.ratio).count(len(effects))]] = 0
        return mask

    def layers(self, model: nn.Module) -> tuple[str, ...]:
        """The names of the defended layers."""
        linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise GradveilError("soteria defends a fully connected layer, and the model has none")
        for name in self.at:
            if name not in linear:
                raise unknown(name, linear, "fully connected layer")
        return self.at or (linear[-1],)

    def adapt(self, attack: Inversion, evidence: Evidence) -> Inversion:
        """Leave the defended weights out of the comparison (Balunovic et al., ICLR 2022)."""
        weights = {f"{layer}.weight" for layer in self.layers(evidence.model)}
        if weights >= set(evidence.gradients):
            return attack
        return replace(attack, weighings=(*attack.weighings, Layers(tuple((name, 0.0) for name in sorted(weights)))))


def effect(model: nn.Module, images: Tensor, layer: str) -> Tensor:
    """|r_i| / ||d r_i / d x||_2 of every image and input feature of a fully connected layer, (B, n)."""
    images = images.detach().clone().requires_grad_()
    with torch.enable_grad():
        features = features_of(model, images, layer)
    count, size = features.shape
    lengths = []
    for rows in torch.split(torch.eye(size).to(features), max(1, AT_ONCE // count)):
        # Images do not mix, so that one backward pass has the slope of a feature for every image.
        basis = rows[:, None].expand(-1, count, -1)
        (slopes,) = torch.autograd.grad(
            features, images, basis, retain_graph=True, is_grads_batched=True, allow_unused=True, materialize_grads=True
        )
        lengths.append(slopes.flatten(2).norm(dim=2))
    length = torch.cat(lengths).T
    return torch.where(length > 0, features.detach().abs() / length, 0.0)


def features_of(model: nn.Module, images: Tensor, layer: str) -> Tensor:
    """What goes into a fully connected layer, (B, n); batch norm in evaluation mode, nothing drawn at random."""
    kept: list[Tensor] = []
    hook = model.get_submodule(layer).register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    try:
        with batch_norm_mode(model, training=False), drawing(model, torch.zeros):
            model(images)
    finally:
        hook.remove()
    if len(kept) != 1 or kept[0].ndim != 2:
        raise GradveilError(f"soteria needs a layer that gets one vector per image once, {layer!r} does not")
    return kept[0]
