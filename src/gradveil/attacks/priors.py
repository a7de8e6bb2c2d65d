"""What an attacker believes of images before seeing a gradient."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.models.batch_statistics import BatchStatistics, Seen, statistics_of, watching_inputs


@dataclass
class Guess:
    """A guess as a prior sees it: `images` (B, C, H, W) in normalised units and `labels`, (B,) or probabilities (B, classes).

    `consensus` is the mean of all runs' guesses, `known` the statistics of the private batch, where the attacker has them, and
    `participants` are behind it. For priors that look inside there are `logits` of the first pass, and `inputs`, what goes into
    every batch norm layer, of all passes; `features` are those of the first.
    """

    images: Tensor
    labels: Tensor
    consensus: Tensor
    logits: Tensor | None = None
    features: Sequence[Seen] = ()
    inputs: list[Seen] = field(default_factory=list)
    known: BatchStatistics = field(default_factory=dict)
    participants: int = 1


class Prior(Protocol):
    """A scalar to add to the objective."""

    # Whether it needs logits or features, which costs a little and keeps runs from sharing one batch.
    looks_inside: ClassVar[bool] = False

    def __call__(self, guess: Guess) -> Tensor: ...


@dataclass(frozen=True)
class TotalVariation(Prior):
    """weight x (mean |horizontal difference| + mean |vertical difference|): neighbours tend to be alike.

    With `isotropic` weight x mean of sqrt(horizontal^2 + vertical^2), which does not prefer axes.
    """

    weight: float
    isotropic: bool = False

    def __call__(self, guess: Guess) -> Tensor:
        images = guess.images
        across = images[..., :, 1:] - images[..., :, :-1]
        down = images[..., 1:, :] - images[..., :-1, :]
        if self.isotropic:
            # The root has no slope at 0.
            return self.weight * (across[..., 1:, :].square() + down[..., :, 1:].square() + 1e-8).sqrt().mean()
        return self.weight * (across.abs().mean() + down.abs().mean())


def smoothness(prior: Prior) -> float:
    """The weight of a total variation; 1 of every other prior, whose weight is its own business."""
    return prior.weight if isinstance(prior, TotalVariation) else 1.0


def without_smoothness(prior: Prior) -> Prior:
    """The prior that `smoothness` has to be multiplied by."""
    return replace(prior, weight=1.0) if isinstance(prior, TotalVariation) else prior


@dataclass(frozen=True)
class SquaredNorm(Prior):
    """weight x the mean square of the normalised pixels: images are not far from the average one."""

    weight: float

    def __call__(self, guess: Guess) -> Tensor:
        return self.weight * guess.images.square().mean()


@dataclass(frozen=True)
class BatchNormStatistics(Prior):
    """weight x sum over batch norm layers of |mean - running mean|^2 + |variance - running variance|^2 (Yin et al., 2021).

    Says something of images only where the running statistics come from training.
    """

    looks_inside: ClassVar[bool] = True
    weight: float

    def __call__(self, guess: Guess) -> Tensor:
        total = guess.images.new_zeros(())
        for layer, values in ((one.layer, one.values) for one in guess.features):
            if layer.running_mean is None or layer.running_var is None:
                continue
            dims = [dim for dim in range(values.ndim) if dim != 1]
            mean, variance = values.mean(dims), values.var(dims, unbiased=False)
            total = total + (mean - layer.running_mean).square().sum() + (variance - layer.running_var).square().sum()
        return self.weight * total


@dataclass(frozen=True)
class KnownStatistics(Prior):
    """weight x the squared relative error of mean and variance in batch norm layers, where those of the private batch are known.

    In every layer errors are relative to its mean variance, so that a weight means the same on another network; the mean over
    layers counts. Other than running statistics they are those of the very images (Huang et al., 2021).
    """

    looks_inside: ClassVar[bool] = True
    weight: float

    def __call__(self, guess: Guess) -> Tensor:
        found, errors = statistics_of(guess.inputs, participants=guess.participants), [guess.images.new_zeros(())]
        known = {name: pair for name, pair in guess.known.items() if name in found}  # the model may leave a layer out
        for name, (mean, variance) in known.items():
            scale = variance.mean().clamp_min(torch.finfo(variance.dtype).tiny)
            own_mean, own_variance = found[name]
            errors.append((own_mean - mean).square().mean() / scale)
            errors.append(((own_variance - variance) / scale).square().mean())
        return self.weight * torch.stack(errors).sum() / max(1, len(known))


@dataclass(frozen=True)
class GroupConsistency(Prior):
    """weight x the mean squared distance to the mean of all runs: where they agree they are right (Yin et al., 2021).

    The mean is taken pixel by pixel, without registering the images first.
    """

    weight: float

    def __call__(self, guess: Guess) -> Tensor:
        return self.weight * (guess.images - guess.consensus).square().mean()


@dataclass(frozen=True)
class LabelTerm(Prior):
    """weight x |F(x) - y|^2: the guess should be classified as its label (CPL, Wei et al., 2020)."""

    looks_inside: ClassVar[bool] = True
    weight: float

    def __call__(self, guess: Guess) -> Tensor:
        assert guess.logits is not None
        labels = guess.labels
        if labels.ndim == 1:
            labels = F.one_hot(labels, guess.logits.shape[1])
        return self.weight * (guess.logits.softmax(1) - labels).square().sum()


@contextmanager
def looking_inside(model: nn.Module, guess: Guess) -> Iterator[None]:
    """Fill in `logits`, `features` and `inputs` while the model runs on the guess."""

    def keep_first(_: nn.Module, __: tuple[Tensor, ...], logits: Tensor) -> None:
        if guess.logits is None:
            guess.logits, guess.features = logits, tuple(guess.inputs)

    hook = model.register_forward_hook(keep_first)
    try:
        with watching_inputs(model) as guess.inputs:
            yield
    finally:
        hook.remove()


def consensus_of(guesses: Tensor) -> Tensor:
    """The mean of (runs, B, C, H, W) over the runs that have not blown up, not followed by the optimizer."""
    still = guesses.detach()
    finite = still.flatten(1).isfinite().all(1)
    return torch.where(finite.view(-1, 1, 1, 1, 1), still, 0).sum(0) / finite.sum().clamp_min(1)
