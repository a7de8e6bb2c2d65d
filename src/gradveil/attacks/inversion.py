"""Rebuild images by searching for ones whose gradient is the shared one."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.attacks.objectives import Objective
from gradveil.attacks.optimizers import Optimizer
from gradveil.attacks.priors import Prior
from gradveil.client import trainable
from gradveil.errors import GradveilError
from gradveil.models import ImageShape, normalization
from gradveil.randomness import generator
from gradveil.types import Gradients

# Called after every iteration; for progress bars.
OnIteration = Callable[[], None]


@dataclass(frozen=True)
class Reconstruction:
    """What an attack rebuilt: `images` float (B, C, H, W) in [0, 1], how well their gradient matches, and how the run went."""

    images: Tensor
    distance: float
    iterations: int
    restarts: int
    # The objective over the iterations of the winning restart.
    history: tuple[float, ...]
    diverged: bool


@dataclass(frozen=True)
class Inversion:
    """Minimise objective(gradient of the guess, shared gradient) + priors over the guess, from noise; labels are known.

    The guess is optimised in the model's normalised units, the units in which learning rates and prior weights are
    published. `boxed` keeps it inside [0, 1] pixels. The best of up to `restarts` runs wins. A run whose distance, as a share
    of the distance of an all-zero gradient, gets to `good_enough` ends the attack; a run that does not halve its distance in
    `patience` iterations ends there, stuck.
    """

    objective: Objective
    optimizer: Optimizer
    priors: tuple[Prior, ...] = ()
    iterations: int = 4800
    restarts: int = 1
    boxed: bool = True
    good_enough: float = 0.0
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.restarts < 1:
            raise GradveilError(
                f"iterations and restarts must be at least 1, got {self.iterations} and {self.restarts}"
            )

    def __call__(
        self,
        model: nn.Module,
        gradients: Gradients,
        labels: Tensor,
        image_shape: ImageShape,
        *,
        seed: int = 0,
        on_iteration: OnIteration | None = None,
    ) -> Reconstruction:
        target = aligned(model, gradients)
        # What a guess gets whose gradient is zero: to end above it is to know less than nothing.
        nothing = float(self.objective([torch.zeros_like(tensor) for tensor in target], target))
        best: Reconstruction | None = None
        for restart in range(self.restarts):
            run = self._run(model, target, labels, image_shape, restart, seed, nothing, on_iteration)
            if best is None or (best.diverged, best.distance) > (run.diverged, run.distance):
                best = run
            if best.distance <= self.good_enough * nothing:
                break
        assert best is not None
        return best

    def _run(
        self,
        model: nn.Module,
        target: tuple[Tensor, ...],
        labels: Tensor,
        image_shape: ImageShape,
        restart: int,
        seed: int,
        nothing: float,
        on_iteration: OnIteration | None,
    ) -> Reconstruction:
        units = normalization(model, image_shape[0])
        lowest, highest = units(torch.zeros_like(units.mean)), units(torch.ones_like(units.mean))
        parameters = trainable(model)[1]
        noise = torch.randn((len(labels), *image_shape), generator=generator(seed, "guess", restart))
        guess = noise.to(labels.device).requires_grad_()

        def closure() -> Tensor:
            loss = F.cross_entropy(model(guess * units.std + units.mean), labels)
            gradient = torch.autograd.grad(loss, parameters, create_graph=True)
            distance = self.objective(gradient, target)
            total = distance + sum(prior(guess) for prior in self.priors)
            (guess.grad,) = torch.autograd.grad(total, guess)
            distances.append(distance.item())
            return total.detach()

        step = self.optimizer.start(guess, self.iterations)
        history: list[float] = []
        distances: list[float] = []
        for _ in range(self.iterations):
            step(closure)
            if self.boxed:
                with torch.no_grad():
                    guess.clamp_(lowest, highest)
            history.append(distances[-1])
            if on_iteration is not None:
                on_iteration()
            if not math.isfinite(history[-1]) or history[-1] <= self.good_enough * nothing or self._stuck(history):
                break
        # The last step has not been evaluated yet.
        closure()
        pixels = guess.detach() * units.std + units.mean
        return Reconstruction(
            # A run that blew up leaves no numbers; grey stands for them, `diverged` says so.
            images=pixels.nan_to_num(0.5, 1.0, 0.0).clamp(0, 1),
            distance=distances[-1],
            iterations=len(history),
            restarts=restart + 1,
            history=tuple(history),
            diverged=not distances[-1] < nothing,
        )

    def _stuck(self, history: list[float]) -> bool:
        if self.patience is None or len(history) <= self.patience:
            return False
        return min(history[-self.patience :]) > 0.5 * min(history[: -self.patience])


def aligned(model: nn.Module, gradients: Gradients) -> tuple[Tensor, ...]:
    """The shared tensors in the order of the model's parameters, refused when they cannot be that model's gradient."""
    names, parameters = trainable(model)
    if set(names) != set(gradients):
        odd = sorted(set(names) ^ set(gradients))[0]
        raise GradveilError(
            f"gradient and model differ: {odd!r} is {'missing' if odd in names else 'unknown to the model'}"
        )
    for name, parameter in zip(names, parameters, strict=True):
        shared = gradients[name]
        if shared.shape != parameter.shape:
            raise GradveilError(
                f"gradient {name!r} is {tuple(shared.shape)}, the model's parameter {tuple(parameter.shape)}"
            )
        if not bool(torch.isfinite(shared).all()):
            raise GradveilError(f"gradient {name!r} holds NaN or infinite values; a finite gradient would do")
    return tuple(gradients[name] for name in names)
