"""The loop that moves guesses until their gradients are the shared ones."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import grad, vmap

from gradveil.attacks.attack import OnIteration
from gradveil.attacks.objectives import weigh
from gradveil.attacks.priors import Guess, consensus_of, looking_inside
from gradveil.attacks.reconstruction import Ending, Reconstruction, Trace, cosines
from gradveil.attacks.restarts import Restart
from gradveil.client import freezing_statistics, loss_of, share, trainable_parameters
from gradveil.models import normalization
from gradveil.models.stochastic import drawing, stochastic_layers
from gradveil.types import Batch, to_bytes

if TYPE_CHECKING:
    from gradveil.attacks.inversion import Inversion

MOMENTS = 20  # of a run that its trace shows
# Runs that share one batch need to be so many: from then on a run's numbers do not depend on what runs beside it, not even in
# the last digit.
FEWEST_TOGETHER = 4


class State:
    """The runs of one loop: what moves, and what has been seen."""

    def __init__(self, attack: "Inversion", runs: list[Restart]) -> None:
        self.attack, self.runs = attack, runs
        self.model = runs[0].evidence.model
        self.normalize = normalization(self.model, runs[0].evidence.image_shape[0])
        self.guess = torch.stack([run.guess for run in runs]).requires_grad_()
        self.soft = torch.stack([run.soft for run in runs]).requires_grad_()
        self.mean = self.guess.detach().clone()
        self.draws = torch.stack([run.draws for run in runs]).requires_grad_(attack.draws == "searched")
        self.distances: list[float] = []
        # The runs' gradients at the last evaluation, where they were computed one by one.
        self.gradients: list[tuple[Tensor, ...]] = []

    @property
    def free(self) -> list[Tensor]:
        """What the optimizer moves."""
        return [tensor for tensor in self.moving if tensor.numel() and tensor.requires_grad]

    @property
    def moving(self) -> list[Tensor]:
        """Everything that a run has for itself, the guess first."""
        return [self.guess, self.soft, self.draws]

    def follow(self, iteration: int) -> None:
        """Update the mean of the guesses; early on it forgets faster, so that the start does not linger."""
        window = min(self.attack.averaging * self.attack.iterations, 1 + self.attack.averaging * iteration)
        self.mean.lerp_(self.guess.detach(), 1 / max(1.0, window))

    def pixels(self, guess: Tensor) -> Tensor:
        """The guess as pixels in [0, 1]."""
        pixels: Tensor = guess * self.normalize.std + self.normalize.mean
        return pixels

    def closure(self) -> Tensor:
        """Distances of all runs, and the gradient of everything that is free."""
        total, self.distances = self._evaluate_batch() if self._shares_a_batch else self._evaluate_each()
        return total

    @cached_property
    def _shares_a_batch(self) -> bool:
        enough = len(self.runs) >= FEWEST_TOGETHER or self.attack.compiled
        return enough and _can_share(self.attack, self.runs)

    def _evaluate_each(self) -> tuple[Tensor, list[float]]:
        consensus = consensus_of(self.guess)
        total = self.guess.new_zeros(())
        distances = []
        self.gradients = []
        for tensor in self.free:
            tensor.grad = torch.zeros_like(tensor)
        for number, run in enumerate(self.runs):
            own = [tensor.detach()[number].requires_grad_(tensor.requires_grad) for tensor in self.moving]
            with drawing(self.model, run.source(own[2])):
                loss, distance = self._loss(run, own[0], own[1], consensus)
            found = torch.autograd.grad(loss, [tensor for tensor in own if tensor.numel() and tensor.requires_grad])
            for tensor, slope in zip(self.free, found, strict=True):
                assert tensor.grad is not None
                tensor.grad[number] = slope
            total += loss.detach()
            distances.append(distance.item())
        return total, distances

    def _loss(self, run: Restart, guess: Tensor, soft: Tensor, consensus: Tensor) -> tuple[Tensor, Tensor]:
        current = Guess(guess, run.label_of(soft), consensus)
        pixels = self.pixels(guess)
        if self.attack.simulate is not None:
            pixels = self.attack.simulate(pixels, run.chance)
        inside = any(prior.looks_inside for prior in self.attack.priors)
        with looking_inside(self.model, current) if inside else nullcontext():
            shared = run.evidence.client(self.model, Batch(pixels, current.labels))
        gradient = tuple(shared.values())
        self.gradients.append(tuple(tensor.detach() for tensor in gradient))
        distance = self.attack.objective(weigh(run.factors, gradient), run.target)
        return distance + sum(prior(current) for prior in self.attack.priors), distance

    def _evaluate_batch(self) -> tuple[Tensor, list[float]]:
        with freezing_statistics(self.model):
            losses, distances = self._batch_loss(self.guess, self.soft, consensus_of(self.guess))
        total = losses.sum()
        found = torch.autograd.grad(total, self.free)
        for tensor, slope in zip(self.free, found, strict=True):
            tensor.grad = slope
        return total.detach(), distances.tolist()

    @cached_property
    def _batch_loss(self) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
        names, parameters = trainable_parameters(self.model)
        weights = tuple(parameter.detach() for parameter in parameters)
        targets = tuple(torch.stack(tensors) for tensors in zip(*(run.target for run in self.runs), strict=True))
        scales = tuple(torch.stack(tensors) for tensors in zip(*(run.factors for run in self.runs), strict=True))
        known = self.soft.numel() == 0
        labels = torch.stack([run.labels if run.labels is not None else run.soft for run in self.runs])

        def loss(parameters: tuple[Tensor, ...], images: Tensor, label: Tensor) -> Tensor:
            return loss_of(self.model, Batch(images, label), dict(zip(names, parameters, strict=True)))

        def one(
            guess: Tensor, label: Tensor, target: tuple[Tensor, ...], scale: tuple[Tensor, ...], consensus: Tensor
        ) -> tuple[Tensor, Tensor]:
            gradient = grad(loss)(weights, self.pixels(guess), label)
            distance = self.attack.objective(weigh(scale, gradient), target)
            current = Guess(guess, label, consensus)
            return distance + sum(prior(current) for prior in self.attack.priors), distance

        def every(guess: Tensor, soft: Tensor, consensus: Tensor) -> tuple[Tensor, Tensor]:
            label = labels if known else soft.softmax(2)
            vectorised = vmap(one, in_dims=(0, 0, 0, 0, None))
            found: tuple[Tensor, Tensor] = vectorised(guess, label, targets, scales, consensus)
            return found

        return torch.compile(every) if self.attack.compiled else every

    def similarity(self, number: int) -> Tensor:
        """Per-parameter cosine of a run's gradient as it was last evaluated."""
        run = self.runs[number]
        if self.gradients:
            return cosines(self.gradients[number], run.evidence.target)
        # Runs that share a batch leave no gradients of their own; nothing is simulated or drawn there.
        pixels = self.pixels(self.guess.detach()[number])
        shared = share(self.model, Batch(pixels, run.label_of(self.soft.detach()[number])))
        return cosines(tuple(shared.values()), run.evidence.target)


class Watch:
    """Follows one run of a loop: when it is over, and what it looked like on the way."""

    def __init__(self, state: State, number: int) -> None:
        self.state, self.number, self.run = state, number, state.runs[number]
        self.every = max(1, state.attack.iterations // MOMENTS)
        self.history: list[float] = []
        self.moments: list[tuple[int, Tensor, Tensor]] = []
        self.last: list[Tensor] = []  # what the run had for itself when it ended
        self.ended: Ending | None = None
        self.best: list[float] = []

    def look(self) -> None:
        """After an iteration."""
        distance = self.state.distances[self.number]
        self.history.append(distance)
        self.best.append(min(distance, self.best[-1]) if self.best else distance)
        if len(self.history) % self.every == 0:
            self.remember()
        attack = self.state.attack
        if not math.isfinite(distance):
            self._end("diverged")
        elif distance <= attack.good_enough * self.run.zero_distance:
            self._end("matched")
        elif (
            attack.patience is not None
            and len(self.best) > attack.patience
            and self.best[-1] > attack.progress * self.best[-1 - attack.patience]
        ):
            self._end("plateau")
        elif len(self.history) == attack.iterations:
            self._end("iterations")

    def _end(self, how: Ending) -> None:
        self.ended = how
        self.last = [tensor.detach()[self.number].clone() for tensor in self.state.moving]
        if self.state.attack.averaging:
            self.last[0] = self.state.mean[self.number].clone()

    def remember(self) -> None:
        """Keep how the run looks now; in the end this is the result itself."""
        if self.moments and self.moments[-1][0] == len(self.history):
            self.moments.pop()
        pixels = self.state.pixels(self.state.guess.detach()[self.number])
        picture = to_bytes(pixels.nan_to_num(0.5, 1.0, 0.0))
        self.moments.append((len(self.history), self.state.similarity(self.number).detach().cpu(), picture.cpu()))

    def reconstruction(self) -> Reconstruction:
        """What came of it, once its last guess has been evaluated."""
        assert self.ended is not None
        distance = self.state.distances[self.number]
        guess, soft, _ = self.last
        labels = self.run.labels if self.run.labels is not None else soft.argmax(1)
        numbers, similarity, frames = zip(*self.moments, strict=True)
        return Reconstruction(
            # A run that blew up leaves no numbers; grey stands for them, `ended` says so.
            images=self.state.pixels(guess).nan_to_num(0.5, 1.0, 0.0).clamp(0, 1),
            labels=labels,
            distance=distance,
            iterations=len(self.history),
            restarts=1,
            ended=self.ended if distance < self.run.zero_distance else "diverged",
            history=tuple(self.history),
            trace=Trace(numbers, tuple(self.run.evidence.gradients), torch.stack(similarity), torch.stack(frames)),
        )


def _can_share(attack: "Inversion", runs: list[Restart]) -> bool:
    plain = attack.simulate is None and not any(prior.looks_inside for prior in attack.priors)
    return plain and not stochastic_layers(runs[0].evidence.model) and all(run.evidence.client is share for run in runs)


def minimise(
    attack: "Inversion", runs: list[Restart], on_iteration: OnIteration | None, *, together: bool = False
) -> list[Reconstruction]:
    """All runs in one loop; those that can share a batch and are too few for it are filled up with copies of the first."""
    count = len(runs)
    if together and _can_share(attack, runs):
        runs = runs + [runs[0]] * (FEWEST_TOGETHER - count)
    state = State(attack, runs)
    lowest, highest = (state.normalize(value(state.normalize.mean)) for value in (torch.zeros_like, torch.ones_like))
    step = attack.optimizer.start(state.free, attack.iterations)
    watches = [Watch(state, number) for number in range(count)]
    iteration = 0
    while running := [watch for watch in watches if watch.ended is None]:
        step(state.closure)
        iteration += 1
        if attack.boxed:
            with torch.no_grad():
                state.guess.clamp_(lowest, highest)
        if attack.averaging:
            state.follow(iteration)
        for watch in running:
            watch.look()
            if on_iteration is not None:
                on_iteration()
    # The last steps have not been evaluated yet.
    with torch.no_grad():
        for watch in watches:
            for tensor, last in zip(state.moving, watch.last, strict=True):
                tensor[watch.number] = last
    state.closure()
    for watch in watches:
        watch.remember()
    return [watch.reconstruction() for watch in watches]
