"""Privacy scores that begin the attack they predict; lower is more private.

An attack (Geiping et al., 2020) follows the descent of 1 - cosine(gradient of the guess, shared gradient), in the model's
normalised units. These scores know T(x), which an attacker does not, so they can tell early where the descent leads. A
descent is a double backward, image by image: memory is bounded by one image.

What counts is the gain over the null, the best constant colour. So all of them look only at what is left of T(x), and of what the
attack does, without each channel's mean and without the noise x0 the attack started from. Otherwise nearly all they saw would be
the noise going away, which any gradient achieves, most of all where T(x) is flat: the wrong way round.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.attacks.objectives import cosine_distance
from gradveil.attacks.optimizers import Adam
from gradveil.client import share, trainable
from gradveil.errors import GradveilError
from gradveil.models import normalization
from gradveil.scores.similarity import Similarity
from gradveil.types import Batch

# What a descent costs, in gradients: measured 2.1 for convnet-16 and 4.3 for resnet20, one 28x28 image on one thread.
DESCENT = 3


@dataclass(frozen=True)
class FewSteps:
    """What an attack learns of T(x) in its first `steps` steps: the gain, in dB, of the best mix of colour, x0 and guess.

    With r the correlation of guess and T(x), both without colour and x0, this is -10 log10(1 - r^2): the PSNR that the guess
    adds, scaled as well as possible; after so few steps its own PSNR would still be below the null's. 0 means that nothing was
    learnt, less (r < 0) that the gradient led away. The steps are those of Adam+Cosine at its first rate, in the pixel box,
    from the noise x0.
    """

    steps: int = 7
    lr: float = 0.1

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise GradveilError(f"an attack of a few steps takes at least 1, got {self.steps}")

    @property
    def evaluations(self) -> int:
        """Gradients per image, or as much work: the one that is matched, and the descents."""
        return 1 + DESCENT * self.steps

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        return torch.stack([self._gain(network.model, *one) for one in singly(images, labels, noise)])

    def _gain(self, model: nn.Module, image: Tensor, label: Tensor, start: Tensor) -> Tensor:
        guess = self._guess(model, image, label, start)
        found = (structure(guess, start) * structure(image, start)).sum()
        return (-10 * found.sign() * torch.log10((1 - found.square()).clamp_min(1e-10))).to(image.dtype)

    def _guess(self, model: nn.Module, image: Tensor, label: Tensor, start: Tensor) -> Tensor:
        target = shared(model, image, label)
        units = normalization(model, image.shape[1])
        lowest, highest = units(torch.zeros_like(units.mean)), units(torch.ones_like(units.mean))
        guess = units(start).clone().requires_grad_()
        step = Adam(self.lr, signed=False, schedule="constant").start([guess], self.steps)

        def closure() -> Tensor:
            # Signs are the same in pixels and in normalised units.
            guess.grad = uphill = -signs(descent(model, pixels(), label, target))
            return uphill

        def pixels() -> Tensor:
            now: Tensor = guess.detach() * units.std + units.mean
            return now

        for _ in range(self.steps):
            step(closure)
            with torch.no_grad():
                guess.clamp_(lowest, highest)
        return pixels()


@dataclass(frozen=True)
class Descent:
    """Whether the attack's steps point to T(x): the cosine of the descent's signs with T(x) - x'(i), the mean over `points`.

    x'(i) = (1 - i) x0 + i T(x), and both directions are without colour and x0, in normalised units. 1 is an attack that goes
    straight to the image, 0 one that gets no nearer. GradSim asks how alike gradients are along the way, this whether an attack
    would take it. With `from_null` the way starts from the best constant colour instead of x0: where the gain over the null
    begins.
    """

    points: tuple[float, ...]
    from_null: bool = False

    def __post_init__(self) -> None:
        if not self.points or not all(0 <= point < 1 for point in self.points):
            raise GradveilError(f"the points of a way lie in 0 <= i < 1, at least one of them, got {self.points}")

    @property
    def evaluations(self) -> int:
        """Gradients per image, or as much work: the one that is matched, and the descents."""
        return 1 + DESCENT * len(self.points)

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        starts = images.mean((2, 3), keepdim=True).expand_as(images) if self.from_null else noise
        return torch.stack([self._cosine(network.model, *one) for one in singly(images, labels, starts)])

    def _cosine(self, model: nn.Module, image: Tensor, label: Tensor, start: Tensor) -> Tensor:
        target = shared(model, image, label)
        deviations = normalization(model, image.shape[1]).std
        ahead = structure(image / deviations, start / deviations)
        cosines = []
        for point in self.points:
            step = signs(descent(model, (1 - point) * start + point * image, label, target))
            cosines.append((structure(step, start / deviations) * ahead).sum())
        return torch.stack(cosines).mean().to(image.dtype)


def signs(direction: Tensor) -> Tensor:
    """-1, 0 or 1; NaN where there is no finite number, which torch would take for 0: a broken network must not look private."""
    return torch.where(direction.isfinite(), direction.sign(), torch.nan)


def structure(image: Tensor, start: Tensor) -> Tensor:
    """`image` (1, C, H, W) without each channel's mean and what `start` explains, of length 1; zeros if nothing is left."""
    whole, noise = image.double(), start.double()
    rest, noise = (values - values.mean((2, 3), keepdim=True) for values in (whole, noise))
    rest = rest - (rest * noise).sum() / noise.square().sum().clamp_min(1e-30) * noise
    length = rest.norm()
    # What rounding leaves of a constant image is not its structure.
    return torch.zeros_like(rest) if bool(length <= 1e-6 * whole.norm()) else rest / length


def singly(*batches: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The batches' first entries as batches of one, then their second ones, and so on."""
    return zip(*([one[None] for one in batch] for batch in batches), strict=True)


def shared(model: nn.Module, image: Tensor, label: Tensor) -> tuple[Tensor, ...]:
    """The gradient that is matched, in the order of the model's parameters."""
    with torch.enable_grad():
        return tuple(share(model, Batch(image, label)).values())


def descent(model: nn.Module, guess: Tensor, label: Tensor, target: tuple[Tensor, ...]) -> Tensor:
    """-d cosine_distance(gradient of the guess, target) / d guess, shaped as the guess, which is in pixels.

    A guess without a gradient has no direction: zeros.
    """
    with torch.enable_grad():
        at = guess.clone().requires_grad_()
        gradient = torch.autograd.grad(F.cross_entropy(model(at), label), trainable(model)[1], create_graph=True)
        distance = cosine_distance(gradient, target)
        if not distance.requires_grad or not any(bool(tensor.any()) for tensor in gradient):
            return torch.zeros_like(guess)
        (uphill,) = torch.autograd.grad(distance, at, allow_unused=True, materialize_grads=True)
    return -uphill
