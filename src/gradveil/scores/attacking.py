"""Privacy scores that begin the attack they predict; lower is more private.

An attack (Geiping et al., 2020) follows the descent of 1 - cosine(gradient of the guess, shared gradient), in the model's
normalised units. These scores know T(x), which an attacker does not, so they can tell early where the descent leads. A
descent is a double backward, image by image: memory is bounded by one image.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil import metrics
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
    """How much nearer to T(x) the first `steps` steps of an attack come: PSNR(guess, T(x)) - PSNR(x0, T(x)) in dB.

    The steps are those of Adam+Cosine with a constant rate `lr` and a pixel box, from the noise x0. 0 means that the gradient
    led nowhere, less that it led away. The reference is the start and not the null: after so few steps every guess is still far
    worse than the best constant colour, and its distance to that would mostly tell how varied T(x) is.
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
        guesses = torch.cat([self._guess(network.model, *one) for one in singly(images, labels, noise)])
        return (metrics.psnr(guesses, images) - metrics.psnr(noise, images)).to(images.dtype)

    def _guess(self, model: nn.Module, image: Tensor, label: Tensor, start: Tensor) -> Tensor:
        target = shared(model, image, label)
        units = normalization(model, image.shape[1])
        lowest, highest = units(torch.zeros_like(units.mean)), units(torch.ones_like(units.mean))
        guess = units(start).clone().requires_grad_()
        step = Adam(self.lr, signed=True, decay=False).start(guess, self.steps)

        def closure() -> Tensor:
            # By the chain rule a step in normalised units sees the pixels' descent times the deviations.
            guess.grad = uphill = -descent(model, pixels(), label, target) * units.std
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
    """Whether the attack's descent points to T(x): its cosine with T(x) - x'(i), the mean over `points` of the way.

    x'(i) = (1 - i) x0 + i T(x). 1 is an attack that goes straight to the image, 0 one that gets no nearer; both directions are in
    normalised units. GradSim asks how alike gradients are along the way, this whether an attack would take it.
    """

    points: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8)

    def __post_init__(self) -> None:
        if not self.points or not all(0 <= point < 1 for point in self.points):
            raise GradveilError(f"the points of a way lie in 0 <= i < 1, at least one of them, got {self.points}")

    @property
    def evaluations(self) -> int:
        """Gradients per image, or as much work: the one that is matched, and the descents."""
        return 1 + DESCENT * len(self.points)

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        return torch.stack([self._cosine(network.model, *one) for one in singly(images, labels, noise)])

    def _cosine(self, model: nn.Module, image: Tensor, label: Tensor, start: Tensor) -> Tensor:
        target = shared(model, image, label)
        deviations = normalization(model, image.shape[1]).std
        ahead = ((image - start) / deviations).flatten()
        cosines = []
        for point in self.points:
            way = descent(model, (1 - point) * start + point * image, label, target) * deviations
            cosines.append(_cosine(way.flatten(), ahead))
        return torch.stack(cosines).mean().to(image.dtype)


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


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    # Descents can be tiny, so each is brought to length 1 before torch's own bound on a norm could mistake it for nothing.
    return (_unit(a) * _unit(b)).sum()


def _unit(vector: Tensor) -> Tensor:
    vector = vector.double()
    norm = vector.norm()
    return vector / torch.where(norm > 0, norm, 1)
