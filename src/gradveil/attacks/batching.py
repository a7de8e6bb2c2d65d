"""Several runs through one network at once."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import grad, vmap

from gradveil.attacks.objectives import weigh
from gradveil.attacks.priors import Guess, consensus_of, smoothness, without_smoothness
from gradveil.attacks.width import Width
from gradveil.client import freezing_statistics, loss_of, trainable_parameters
from gradveil.models.losses import loss_function
from gradveil.types import Batch

if TYPE_CHECKING:
    from gradveil.attacks.loop import State


class SharedBatch:
    """The runs in `rows` through one network at once, every run with the gradient that it would have alone."""

    def __init__(self, state: "State", rows: list[int]) -> None:
        self.state, self.rows = state, rows
        runs = [state.runs[row] for row in rows]
        self.targets = tuple(torch.stack(tensors) for tensors in zip(*(run.target for run in runs), strict=True))
        self.scales = tuple(torch.stack(tensors) for tensors in zip(*(run.factors for run in runs), strict=True))
        self.labels = torch.stack([run.labels if run.labels is not None else run.soft for run in runs])
        # Attackers who know a noise smooth the more the larger it is beside the gradient.
        weights = [[smoothness(prior) for prior in run.attack.priors] for run in runs]
        self.weights = torch.tensor(weights, device=state.guess.device)
        self.is_new = True
        self.width = Width(len(rows), whole=state.attack.compiled)

    def evaluate(self) -> list[tuple[float, float]]:
        """Loss and distance per row; the gradient of what is free goes where it belongs."""
        evaluate = partial(self._evaluate_part, consensus_of(self.state.guess))

        def slopes(width: int) -> Tensor:
            for low in range(0, len(self.rows), width):
                evaluate(low, min(low + width, len(self.rows)))
            return torch.cat([tensor.grad.flatten() for tensor in self.state.free if tensor.grad is not None])

        with freezing_statistics(self.state.model):
            if self.is_new:
                self.width.keep_equal(slopes)
                self.is_new = False
            return self.width.evaluate(evaluate)

    def _evaluate_part(self, consensus: Tensor, low: int, high: int) -> list[tuple[float, float]]:
        state, rows = self.state, self.rows[low:high]
        guess, soft = (tensor.detach()[rows].requires_grad_() for tensor in (state.guess, state.soft))
        labels = self.labels[low:high] if soft.numel() == 0 else loss_function(state.model).soft_labels(soft)
        given = [tuple(tensor[low:high] for tensor in tensors) for tensors in (self.targets, self.scales)]
        losses, distances, gradient = self._losses(guess, labels, *given, self.weights[low:high], consensus)
        slopes = torch.autograd.grad(losses.sum(), [tensor for tensor in (guess, soft) if tensor.numel()])
        for tensor, slope in zip(state.free, slopes, strict=True):
            assert tensor.grad is not None
            tensor.grad[rows] = slope
        stacked = tuple(tensor.detach() for tensor in gradient)
        state.gradients |= {row: (stacked, place) for place, row in enumerate(rows)}
        return list(zip(losses.tolist(), distances.tolist(), strict=True))

    @cached_property
    def _losses(self) -> Callable[..., tuple[Tensor, Tensor, tuple[Tensor, ...]]]:
        state, attack = self.state, self.state.attack
        names, parameters = trainable_parameters(state.model)
        weights = tuple(parameter.detach() for parameter in parameters)
        priors = [without_smoothness(prior) for prior in attack.priors]

        def loss(parameters: tuple[Tensor, ...], images: Tensor, label: Tensor) -> Tensor:
            return loss_of(state.model, Batch(images, label), dict(zip(names, parameters, strict=True)))

        def one(
            guess: Tensor,
            label: Tensor,
            target: tuple[Tensor, ...],
            scale: tuple[Tensor, ...],
            smooth: Tensor,
            consensus: Tensor,
        ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
            gradient = grad(loss)(weights, state.pixels(guess), label)
            distance = attack.objective(weigh(scale, gradient), target)
            current = Guess(guess, label, consensus)
            terms = (weight * prior(current) for weight, prior in zip(smooth, priors, strict=True))
            return distance + sum(terms), distance, gradient

        every = vmap(one, in_dims=(0, 0, 0, 0, 0, None))
        return torch.compile(every) if attack.compiled else every
