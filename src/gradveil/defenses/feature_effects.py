"""Which features of a layer say most about the image: exact slopes where they decide, estimates elsewhere.

The effect of feature r_i is |r_i| / ||d r_i / d x||_2. A slope takes a backward pass of its own, some hundred for one layer. But
what is asked for is which features have the largest effects, not how large these are. One forward derivative along a random
direction z, standard normal, has (d r_i / d x) z for all features at once. It is normal with the slope as its deviation: the mean
of k squares is the squared slope times chi2_k / k, whatever the network. So a few directions place every feature in an interval;
only those whose interval reaches across the border are computed exactly. Who can do with nearly the same features takes a fixed
number of directions and no slope.
"""

import warnings
from dataclasses import dataclass
from functools import lru_cache, partial
from math import exp, lgamma, sqrt
from statistics import NormalDist

import torch
from torch import Tensor, nn

from gradveil.client import batch_norm_mode
from gradveil.errors import GradveilError
from gradveil.models.stochastic import drawing
from gradveil.randomness import generator

# Pairs of an image and a feature, or a direction, in one pass.
AT_ONCE = 256
DIRECTIONS = 8  # between two looks at how many features are in doubt
# Features in doubt per direction above which more directions are cheaper than the slopes they spare.
WORTH = 4
SETTLED = 16  # at least, before the next look
# How often a feature's interval may miss its effect. A mask of a thousand features is wrong less than once in half a million.
MISSES = 1e-9


def effect(model: nn.Module, images: Tensor, layer: str, features: Tensor | None = None) -> Tensor:
    """The exact effects of every image and input feature of a fully connected layer, (B, n), or of the `features` named.

    One backward pass per feature. A feature without slope counts 0.
    """
    images = images.detach().clone().requires_grad_()
    with torch.enable_grad():
        values = features_of(model, images, layer)
    count, size = values.shape
    chosen = torch.arange(size, device=values.device) if features is None else features
    lengths = [values.new_zeros((0, count))]
    for rows in torch.split(chosen, max(1, AT_ONCE // count)):
        # Images do not mix, so that one backward pass has the slope of a feature for every image.
        basis = nn.functional.one_hot(rows, size).to(values)[:, None].expand(-1, count, -1)
        (slopes,) = torch.autograd.grad(
            values, images, basis, retain_graph=True, is_grads_batched=True, allow_unused=True, materialize_grads=True
        )
        lengths.append(slopes.flatten(2).norm(dim=2))
    return _ratio(values.detach()[:, chosen], torch.cat(lengths).T)


def largest_effects(model: nn.Module, images: Tensor, layer: str, count: int, directions: int = 0) -> Tensor:
    """The `count` features whose effects, as `effect` has them, have the largest means over images; of equal ones the first.

    With `directions` they are those of estimates from so many random directions, whatever the doubt.
    """
    effects = _rough_effects(model, images, layer, directions) if directions else _estimate(model, images, layer, count)
    while len(features := effects.doubtful(count)):
        # Those closest to the border first: once they are known the border is sharper, and others are clear of it.
        closest = features[: max(SETTLED, len(features) // 2)]
        effects.settle(closest, effect(model, images, layer, closest))
    return effects.value.mean(0).argsort(descending=True, stable=True)[:count]


@dataclass
class Effects:
    """What is known of all effects: `value` (B, n), and how far below and above it they may be, `spread` (2, B, n)."""

    value: Tensor
    spread: Tensor

    def interval(self) -> tuple[Tensor, Tensor]:
        """From where to where the mean over the images may be, (n,)."""
        # Every image has directions of its own, so that errors add in squares.
        mean, (below, above) = self.value.mean(0), self.spread.square().sum(1).sqrt() / len(self.value)
        return mean - below, mean + above

    def doubtful(self, count: int) -> Tensor:
        """The features that may or may not be among the `count` with the largest means, but for those known; closest first."""
        mean, (low, high) = self.value.mean(0), self.interval()
        if not 0 < count < len(mean):
            return torch.zeros(0, dtype=torch.int64, device=mean.device)
        inside = low > high.sort(descending=True).values[count]
        outside = high < low.sort(descending=True).values[count - 1]
        border = mean.sort(descending=True).values[count - 1 : count + 1].mean()
        order = (mean - border).abs().argsort()
        return order[(~inside & ~outside & (low < high))[order]]

    def settle(self, features: Tensor, exact: Tensor) -> None:
        """From now on the effects of these features are known."""
        self.value[:, features] = exact
        self.spread[:, :, features] = 0


def _estimate(model: nn.Module, images: Tensor, layer: str, count: int) -> Effects:
    """Effects from so many directions that more of them would cost more than the exact slopes they spare."""
    with torch.no_grad():
        values = features_of(model, images, layer)
    known = _unknown_effects(values)
    chance, squares, directions = generator(0, "soteria", layer), torch.zeros_like(values), 0
    while len(known.doubtful(count)) > WORTH * (directions + DIRECTIONS):
        found = _squared_derivatives(model, images, layer, DIRECTIONS, chance)
        if found is None:
            break
        squares += found
        directions += DIRECTIONS
        known = estimate_effects(values, squares, directions)
    return known


def _rough_effects(model: nn.Module, images: Tensor, layer: str, directions: int) -> Effects:
    """Effects from so many directions, up to one factor for all of them, and taken for known."""
    with torch.no_grad():
        values = features_of(model, images, layer)
    squares = _squared_derivatives(model, images, layer, directions, generator(0, "soteria", layer))
    if squares is None:
        return _unknown_effects(values)
    return Effects(_ratio(values, squares.sqrt()), values.new_zeros((2, *values.shape)))


def _unknown_effects(values: Tensor) -> Effects:
    return Effects(torch.zeros_like(values), values.new_full((2, *values.shape), torch.inf))


def estimate_effects(values: Tensor, squares: Tensor, directions: int) -> Effects:
    """Effects of features with these values and sums of squared derivatives along so many directions."""
    mean, deviation, low, high = _inverse_chi(directions, MISSES)
    value = _ratio(values, (squares / directions).sqrt()) / mean
    # For one image that is the whole truth. Means over several are closer to normal, and want its tails if these are longer.
    normal = NormalDist().inv_cdf(1 - MISSES) * deviation / mean if len(values) > 1 else 0.0
    spread = [value * max(1 - mean * low, normal), value * max(mean * high - 1, normal)]
    return Effects(value, torch.stack(spread))


def _squared_derivatives(
    model: nn.Module, images: Tensor, layer: str, count: int, chance: torch.Generator
) -> Tensor | None:
    """The sum of ((d r_i / d x) z)^2 over `count` random directions z, every image with its own, (B, n).

    None for a network that has a layer without forward derivatives, or one that draws at random: its slopes are computed one by
    one, where other errors come again.
    """
    directions = torch.randn((count, *images.shape), generator=chance).to(images)

    def derivative(direction: Tensor) -> Tensor:
        found: Tensor = torch.func.jvp(partial(features_of, model, layer=layer), (images,), (direction,))[1]
        return found

    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="`torch.jit.script`"
        )  # of torch's own, in the first forward derivative
        try:
            derivatives = torch.func.vmap(derivative, chunk_size=max(1, AT_ONCE // len(images)))(directions)
        except (NotImplementedError, RuntimeError):
            return None
    return derivatives.square().sum(0)


@lru_cache
def _inverse_chi(directions: int, misses: float) -> tuple[float, float, float, float]:
    """Of Y = sqrt(chi2_k / k): mean and deviation of 1 / Y, and what Y is below, and above, as rarely as `misses`."""
    k = directions
    mean = sqrt(k / 2) * exp(lgamma((k - 1) / 2) - lgamma(k / 2))
    grid, half = torch.linspace(0, 3, 3001, dtype=torch.float64), torch.tensor(k / 2, dtype=torch.float64)
    low = grid[torch.special.gammainc(half, half * grid**2) < misses][-1]
    high = grid[torch.special.gammaincc(half, half * grid**2) < misses][0]
    return mean, sqrt(k / (k - 2) - mean**2), float(low), float(high)


def _ratio(values: Tensor, slopes: Tensor) -> Tensor:
    return torch.where(slopes > 0, values.abs() / slopes, 0.0)


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
