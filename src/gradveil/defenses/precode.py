"""PRECODE: a variational bottleneck in the network, and three ways around it (Scheliga et al., 2022)."""

import copy
import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.attacks import Attack, ClosedForm, Evidence, Inversion
from gradveil.attacks.analytic import first_layer_rest, layer_inputs, unexplained
from gradveil.attacks.objectives import Layers, Weighing
from gradveil.defenses.base import Defense
from gradveil.errors import GradveilError
from gradveil.models.stochastic import StochasticLayer
from gradveil.naming import unknown
from gradveil.randomness import derive_seed, generator
from gradveil.types import Gradients

# A weight's gradient of one image is an outer product; what of it may be none when readings are still believed.
TRUSTED = 1e-2
Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


class Sample(StochasticLayer):
    """Statistics, along `axis` k means and k raw deviations, to mu + sigma eps with sigma = softplus(raw) and eps ~ N(0, 1).

    Costs beta KL(N(mu, sigma) || N(0, 1)) = beta / 2 sum over k of (mu^2 + sigma^2 - 1 - 2 log sigma), averaged over the images
    and over the places of a feature map. PRECODE's published code counts the same in bits, so that its beta is 0.69 of this one.
    """

    def __init__(self, beta: float, seed: int, axis: int) -> None:
        super().__init__(seed)
        self.beta = beta
        self.axis = axis

    def forward(self, statistics: Tensor) -> Tensor:
        mu, sigma = self.moments(statistics)
        return mu + sigma * self.draw(mu)

    def penalty(self, x: Tensor) -> Tensor:
        mu, sigma = self.moments(x)
        divergence = (mu.square() + sigma.square() - 1 - 2 * sigma.log()).sum(self.axis) / 2
        return self.beta * divergence.mean()

    def moments(self, statistics: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of every bottleneck value, k each along the axis."""
        mu, raw = statistics.chunk(2, self.axis)
        return mu, F.softplus(raw)


class VariationalBottleneck(nn.Module):
    """What goes into `layer` -> statistics of k values -> a sample of them -> the same shape again; it always samples.

    In front of a fully connected layer its own two are fully connected (PRECODE); in front of a convolution they are
    convolutions over 3 pixels and over 1, without bias, and k counts channels (CVB, Scheliga et al., 2023).
    """

    def __init__(self, layer: Layer, k: int, beta: float, seed: int) -> None:
        super().__init__()
        if isinstance(layer, nn.Linear):
            self.encoder: Layer = nn.Linear(layer.in_features, 2 * k, device="meta")
            self.decoder: Layer = nn.Linear(k, layer.in_features, device="meta")
            axis = -1
        else:
            pixels = layer.weight.dim() - 2
            convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[pixels - 1]
            self.encoder = convolution(layer.in_channels, 2 * k, 3, padding=1, bias=False, device="meta")
            self.decoder = convolution(k, layer.in_channels, 1, bias=False, device="meta")
            axis = -1 - pixels
        self.sample = Sample(beta, derive_seed(seed, "sample"), axis)
        _draw_weights(self.encoder, generator(seed, "encoder"))
        _draw_weights(self.decoder, generator(seed, "decoder"))

    def forward(self, x: Tensor) -> Tensor:
        decoded: Tensor = self.decoder(self.sample(self.encoder(x)))
        return decoded


@dataclass(frozen=True)
class Precode(Defense):
    """Put a variational bottleneck of size `k` in front of layers, with `beta` x KL on the loss.

    `at` names these layers, fully connected or convolutions; without it is the last fully connected one. `betas` are one beta for
    each of them, in place of one for all. A layer called `classify` becomes `classify.precode` and `classify.layer`. The model
    that is given is left as it is.

        Precode(k=128, at=("features.0", "classify"), betas=(1e-2, 1e-4))
    """

    name: ClassVar[str] = "precode"
    knowledge = (
        "reads the image off where the network begins with a fully connected layer; elsewhere reads the bottleneck's "
        "sample off the gradient of a single image and compares the layers in front of the bottleneck only; searches for "
        "the sample together with the images of a batch, and where the bottleneck stands before a convolution"
    )
    k: int = 256
    beta: float = 1e-3
    at: tuple[str, ...] = ()
    betas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.k <= 65536:
            raise GradveilError(f"PRECODE needs a bottleneck of 1 to 65536 values, such as k=256, got {self.k}")
        for beta in (self.beta, *self.betas):
            if not 0 <= beta < float("inf"):
                raise GradveilError(f"PRECODE needs a beta, the weight of KL, from 0 on, such as 1e-3, got {beta:g}")
        if self.betas and len(self.betas) != max(1, len(self.at)):
            raise GradveilError(
                f"PRECODE needs a beta for each of {max(1, len(self.at))} bottlenecks, got {len(self.betas)} betas"
            )

    def network(self, model: nn.Module, *, seed: int) -> nn.Module:
        defended = copy.deepcopy(model)
        positions = self._positions(model)
        for position, beta in zip(positions, self.betas or (self.beta,) * len(positions), strict=True):
            layer = defended.get_submodule(position)
            assert isinstance(layer, Layer)
            bottleneck = VariationalBottleneck(layer, self.k, beta, derive_seed(seed, "precode", position))
            bottleneck.to(layer.weight).train(layer.training)
            guarded = nn.Sequential(OrderedDict(precode=bottleneck, layer=layer)).train(layer.training)
            parent, _, child = position.rpartition(".")
            if not position:
                return guarded
            setattr(defended.get_submodule(parent), child, guarded)
        return defended

    def _positions(self, model: nn.Module) -> tuple[str, ...]:
        layers = {name: module for name, module in model.named_modules() if isinstance(module, Layer)}
        for position in self.at:
            if position not in layers:
                raise unknown(position, layers, "fully connected layer or convolution")
        linear = [name for name, module in layers.items() if isinstance(module, nn.Linear)]
        if not self.at and not linear:
            raise GradveilError("PRECODE needs a fully connected layer, the model has none: name a convolution")
        return self.at or (linear[-1],)

    def adapt(self, attack: Inversion, evidence: Evidence) -> Attack:
        if evidence.images == 1 and attack.simulate is None and _begins_fully_connected(evidence):
            return ClosedForm(labels="known" if attack.labels == "known" else "read")
        if evidence.images == 1 and _is_readable(evidence):
            return replace(attack, draws=read_draws, weighings=(*attack.weighings, *_without_bottlenecks(evidence)))
        return replace(attack, draws="searched")


def bottlenecks(model: nn.Module) -> dict[str, VariationalBottleneck]:
    """The bottlenecks of a model by name; as prefixes they name the stochastic part of its gradient."""
    return {name: module for name, module in model.named_modules() if isinstance(module, VariationalBottleneck)}


def read_draws(evidence: Evidence) -> Tensor:
    """What the bottlenecks drew for a single image, read off the gradient of their own layers.

    Encoder and decoder are fully connected, so that each gives its input away: the encoder the features x, the decoder the
    sample z. The weights turn x into mu and sigma, and eps = (z - mu) / sigma.
    """
    found: list[Tensor] = []
    for name, bottleneck in bottlenecks(evidence.model).items():
        features, _ = _input(evidence.gradients, f"{name}.encoder")
        sample, _ = _input(evidence.gradients, f"{name}.decoder")
        with torch.no_grad():
            mu, sigma = bottleneck.sample.moments(bottleneck.encoder(features))
        found.append((sample - mu) / sigma)
    return torch.cat(found)


def _without_bottlenecks(evidence: Evidence) -> tuple[Weighing, ...]:
    """Leave out every bottleneck with the layer behind it, as long as something is left to compare."""
    guarded = [name.rpartition(".")[0] for name in bottlenecks(evidence.model)]
    if all(guarded) and any(all(not name.startswith(f"{layer}.") for layer in guarded) for name in evidence.gradients):
        return (Layers(tuple((layer, 0.0) for layer in guarded)),)
    return ()


def _is_readable(evidence: Evidence) -> bool:
    names = [f"{name}.{part}" for name in bottlenecks(evidence.model) for part in ("encoder", "decoder")]
    shared = all(f"{name}.{kind}" in evidence.gradients for name in names for kind in ("weight", "bias"))
    return bool(names) and shared and all(_input(evidence.gradients, name)[1] < TRUSTED for name in names)


def _begins_fully_connected(evidence: Evidence) -> bool:
    """Whether the network begins with a fully connected layer whose gradient is that of one image."""
    try:
        row = layer_inputs(evidence.model, evidence.gradients)[0][0]
    except GradveilError:
        return False
    return len(row) == math.prod(evidence.image_shape) and first_layer_rest(evidence, row) < TRUSTED


def _input(gradients: Gradients, layer: str) -> tuple[Tensor, float]:
    """The input of a fully connected layer by least squares over its rows, and the fraction of the gradient it leaves over."""
    weight, bias = gradients[f"{layer}.weight"], gradients[f"{layer}.bias"]
    row = weight.T @ bias / bias.square().sum().clamp_min(1e-30)
    return row, unexplained(weight, bias, row)


def _draw_weights(layer: Layer, chance: torch.Generator) -> None:
    """As torch draws the weights of a new layer, from a generator instead of the global stream."""
    layer.to_empty(device="cpu")
    bound = 1 / math.sqrt(layer.weight[0].numel())
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=chance)
