"""DP-SGD (Abadi et al., CCS 2016) on Opacus: the one defense here with a proof."""

import copy
import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradveil.attacks import Attack, Evidence, Inversion
from gradveil.client import Aggregate, Client, FedAvg, gradient, share, trainable_parameters
from gradveil.defenses.base import PoissonSampled
from gradveil.defenses.noise import GaussianNoise
from gradveil.defenses.per_image import has_batch_norm, ignoring_warnings, per_image, refuse_batch_norm
from gradveil.defenses.pruning import Clip
from gradveil.errors import GradveilError
from gradveil.randomness import derive_seed
from gradveil.types import Batch, Gradients

# Entries of per-image gradients in memory at once (a gigabyte in single precision).
MOST_ENTRIES = 2**28


@dataclass(frozen=True)
class DpSgd(PoissonSampled):
    """Clip every image's gradient to the norm `norm`, average, and add Gaussian noise of deviation `noise` x `norm` / B.

    (sum over images of g_i min(1, norm / |g_i|)) / B + N(0, (noise norm / B)^2), with |g_i| over all parameters together; B is
    `expected`, the mean size of a batch, where it is given, and else the size of this one. The proof asks for Poisson sampling
    (every image is in a batch by a draw of its own), for an `expected` B, and for a seed that nobody else knows. What a layer
    adds to the loss (PRECODE) counts as part of its image's loss.

        DpSgd().for_epsilon(3, sample_rate=0.01, steps=1000).noise
    """

    name: ClassVar[str] = "dp-sgd"
    knowledge = "knows the clipping norm and " + GaussianNoise.knowledge.removeprefix("knows ")
    noise: float = 1.0
    norm: float = 1.0
    delta: float = 1e-5
    expected: float | None = None
    # Batch norm mixes images, so that no gradient is one image's own: refused, or replaced by group norm.
    batch_norm: Literal["refuse", "group"] = "refuse"

    def __post_init__(self) -> None:
        if not 0 <= self.noise < float("inf"):
            raise GradveilError(f"dp-sgd needs a noise from 0 on, such as noise=1.0, got {self.noise:g}")
        if not 0 < self.norm < float("inf"):
            raise GradveilError(f"dp-sgd needs a clipping norm above 0, such as norm=1.0, got {self.norm:g}")
        if not 0 < self.delta < 1:
            raise GradveilError(f"dp-sgd needs a delta between 0 and 1, such as delta=1e-5, got {self.delta:g}")
        if self.expected is not None and not 0 < self.expected < float("inf"):
            raise GradveilError(f"dp-sgd needs an expected batch above 0, such as expected=13, got {self.expected:g}")

    def with_expected_batch(self, expected: float) -> "DpSgd":
        return self if self.expected is not None else replace(self, expected=expected)

    def network(self, model: nn.Module, *, seed: int) -> nn.Module:
        if self.batch_norm == "refuse" or not has_batch_norm(model):
            return model
        grouped = copy.deepcopy(model)
        for name, module in list(grouped.named_modules()):
            if isinstance(module, _BatchNorm):
                parent, _, child = name.rpartition(".")
                setattr(grouped.get_submodule(parent), child, _group_norm(module, like=next(model.parameters())))
        return grouped

    def client(self, client: Client, *, seed: int) -> Client:
        if client is not share and client is not gradient:
            own = getattr(client, "__self__", client)
            local = isinstance(own, FedAvg | Aggregate)
            problem = f"expected client fedsgd, got {own}" if local else "no other defense before it may compute it"
            raise GradveilError(f"dp-sgd clips the gradient of every image of one step: {problem}")
        return PrivateGradient(self, seed)

    def epsilon(self, sample_rate: float, steps: int) -> float:
        """The epsilon of (epsilon, delta)-DP per image after `steps` steps, by Opacus' RDP accountant.

        `sample_rate` is the chance of an image to be in a batch. Neighbours are sets of images that differ by one image more
        or less.
        """
        _check_sampling(sample_rate, steps)
        from opacus.accountants import RDPAccountant

        if self.noise == 0 and steps:
            return math.inf
        accountant = RDPAccountant()
        accountant.history = [(self.noise, sample_rate, steps)] if steps else []
        with ignoring_warnings():
            return float(accountant.get_epsilon(delta=self.delta))

    def for_epsilon(self, epsilon: float, sample_rate: float, steps: int) -> "DpSgd":
        """The same defense with the noise for at most this epsilon, and little less, after `steps` steps."""
        _check_sampling(sample_rate, steps)
        if not 0 < epsilon < float("inf"):
            raise GradveilError(f"dp-sgd needs an epsilon above 0, such as 3, got {epsilon:g}")
        from opacus.accountants.utils import get_noise_multiplier

        try:
            with ignoring_warnings():
                noise = get_noise_multiplier(
                    target_epsilon=epsilon,
                    target_delta=self.delta,
                    sample_rate=sample_rate,
                    steps=steps,
                    epsilon_tolerance=min(0.01, epsilon / 100),
                )
        except ValueError:
            raise GradveilError(f"no noise gives epsilon {epsilon:g}: use a larger epsilon") from None
        # Upwards, to a number that can be typed.
        return replace(self, noise=math.ceil(1e4 * float(noise)) / 1e4)

    def deviation(self, images: int) -> float:
        """Of the noise on one entry of what is shared."""
        return self.noise * self.norm / self.divisor(images)

    def divisor(self, images: int) -> float:
        """What the sum over a batch of so many images is divided by."""
        if self.expected is None and images == 0:
            raise GradveilError("dp-sgd got an empty batch without an expected size: give one, such as expected=13")
        return self.expected or images

    def adapt(self, attack: Inversion, evidence: Evidence) -> Attack:
        # Of one image clipping changes the length only, of several the direction too, which nobody can undo.
        clipped = Clip(self.norm).adapt(attack, evidence) if evidence.images == 1 else attack
        return GaussianNoise(self.deviation(evidence.images)).adapt(clipped, evidence)

    @property
    def guarantee(self) -> str:
        if self.noise == 0:
            return "nothing"
        proven = f"(eps, {self.delta:g})-DP per image"
        return f"{proven}, eps by Opacus' accountant for the sample rate and the steps taken; Poisson sampling"


@dataclass(frozen=True)
class PrivateGradient:
    """A participant that shares the clipped and noisy gradient; its noise is a function of the seed and a parameter's name."""

    defense: DpSgd
    seed: int

    def __call__(self, model: nn.Module, batch: Batch) -> Gradients:
        # Not only where a batch has images: an empty one shares noise, which would look like a proof.
        refuse_batch_norm(model)
        return self.release(self.clipped_sum(model, batch), len(batch.images))

    def release(self, total: Gradients, images: int) -> Gradients:
        """The noisy mean, of the clipped sum over a batch of so many images."""
        divisor = self.defense.divisor(images)
        mean = {name: value / divisor for name, value in total.items()}
        noise = GaussianNoise(self.defense.deviation(images))
        return noise.gradients(mean, seed=derive_seed(self.seed, "dp-sgd"))

    def clipped_sum(self, model: nn.Module, batch: Batch) -> Gradients:
        """The sum over images of gradients clipped to the norm."""
        names, parameters = trainable_parameters(model)
        sums = [torch.zeros_like(parameter) for parameter in parameters]
        at_once = max(1, MOST_ENTRIES // sum(parameter.numel() for parameter in parameters))
        # Splitting nothing gives one empty piece.
        pieces = torch.split(torch.arange(len(batch.images)), at_once) if len(batch.images) else ()
        for piece in pieces:
            each = per_image(model, Batch(batch.images[piece].detach(), batch.labels[piece]))
            sums = [total + more for total, more in zip(sums, clip_and_sum(each, self.defense.norm), strict=True)]
        return dict(zip(names, sums, strict=True))


def clip_and_sum(each: list[Tensor], norm: float) -> list[Tensor]:
    """The sum over images of their gradients, (B, ...) per parameter, none of them longer than `norm`."""
    lengths = torch.stack([one.unsqueeze(-1).flatten(1).norm(dim=1) for one in each]).norm(dim=0)
    scale = norm / lengths.clamp_min(norm)
    return [torch.tensordot(scale, one, 1) for one in each]


def _group_norm(module: _BatchNorm, *, like: Tensor) -> nn.GroupNorm:
    """As Opacus replaces batch norm, but of a model that need not be picklable."""
    channels = module.num_features
    return nn.GroupNorm(math.gcd(32, channels), channels, affine=module.affine).to(like).train(module.training)


def _check_sampling(sample_rate: float, steps: int) -> None:
    if not 0 < sample_rate <= 1:
        raise GradveilError(f"expected a sample rate above 0 up to 1, got {sample_rate:g}")
    if steps < 0:
        raise GradveilError(f"the number of steps is 0 or more, got {steps}")
