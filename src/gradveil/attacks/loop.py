"""The loop that moves guesses until their gradients are the shared ones."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import grad, vmap

from gradveil.attacks.attack import OnIteration
from gradveil.attacks.priors import Seen, consensus_of, looking_inside
from gradveil.attacks.reconstruction import Ending, Reconstruction, Trace, cosines
from gradveil.attacks.runs import Restart
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
        self.units = normalization(self.model, runs[0].evidence.image_shape[0])
        self.guess = torch.stack([run.guess for run in runs]).requires_grad_()
        self.soft = torch.stack([run.soft for run in runs]).requires_grad_()
        self.mean = self.guess.detach().clone()
        self.drawn = torch.stack([run.drawn for run in runs]).requires_grad_(attack.draws == "searched")
        self.distances: list[float] = []
        # The runs' gradients at the last evaluation, where they were computed one by one.
        self.gradients: list[tuple[Tensor, ...]] = []

    @property
    def free(self) -> list[Tensor]:
        return [tensor for tensor in self.moving if tensor.numel() and tensor.requires_grad]

    @property
    def moving(self) -> list[Tensor]:
        """Everything that a run has for itself, the guess first."""
        return [self.guess, self.soft, self.drawn]

    def follow(self, iteration: int) -> None:
        """Update the mean of the guesses; early on it forgets faster, so that the start does not linger."""
        window = min(self.attack.averaging * self.attack.iterations, 1 + self.attack.averaging * iteration)
        self.mean.lerp_(self.guess.detach(), 1 / max(1.0, window))

    def pixels(self, guess: Tensor) -> Tensor:
        made: Tensor = guess * self.units.std + self.units.mean
        return made

    def closure(self) -> Tensor:
        """Distances of all runs, and the gradient of everything that is free."""
        total, self.distances = self._batched() if self._shares_a_batch else self._one_by_one()
        return total

    @cached_property
    def _shares_a_batch(self) -> bool:
        enough = len(self.runs) >= FEWEST_TOGETHER or self.attack.compiled
        return enough and _can_share(self.attack, self.runs)

    def _one_by_one(self) -> tuple[Tensor, list[float]]:
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
        labels = run.label_of(soft)
        seen = Seen(guess, labels, consensus)
        pixels = self.pixels(guess)
        if self.attack.simulate is not None:
            pixels = self.attack.simulate(pixels, run.chance)
        if any(prior.looks_inside for prior in self.attack.priors):
            with looking_inside(self.model, seen):
                shared = run.evidence.client(self.model, Batch(pixels, labels))
        else:
            shared = run.evidence.client(self.model, Batch(pixels, labels))
        gradient = tuple(shared.values())
        self.gradients.append(tuple(tensor.detach() for tensor in gradient))
        distance = self.attack.objective(run.weigh(gradient), run.target)
        return distance + sum(prior(seen) for prior in self.attack.priors), distance

    def _batched(self) -> tuple[Tensor, list[float]]:
        with freezing_statistics(self.model):
            losses, distances = self._vectorised(self.guess, self.soft, consensus_of(self.guess))
        total = losses.sum()
        found = torch.autograd.grad(total, self.free)
        for tensor, slope in zip(self.free, found, strict=True):
            tensor.grad = slope
        return total.detach(), distances.tolist()

    @cached_property
    def _vectorised(self) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
        names, parameters = trainable_parameters(self.model)
        weights = tuple(parameter.detach() for parameter in parameters)
        targets = tuple(torch.stack(tensors) for tensors in zip(*(run.target for run in self.runs), strict=True))
        # Without a weighing a factor of 1 stands for it.
        ones = [torch.ones((), device=self.guess.device)] * len(names)
        scales = tuple(
            torch.stack(tensors) for tensors in zip(*(run.factors or ones for run in self.runs), strict=True)
        )
        weighed = bool(self.attack.weighings)
        known = self.soft.numel() == 0
        labels = torch.stack([run.labels if run.labels is not None else run.soft for run in self.runs])

        def loss(parameters: tuple[Tensor, ...], images: Tensor, label: Tensor) -> Tensor:
            return loss_of(self.model, Batch(images, label), dict(zip(names, parameters, strict=True)))

        def one(
            guess: Tensor, label: Tensor, target: tuple[Tensor, ...], scale: tuple[Tensor, ...], consensus: Tensor
        ) -> tuple[Tensor, Tensor]:
            gradient = grad(loss)(weights, self.pixels(guess), label)
            if weighed:
                gradient = tuple(factor * tensor for factor, tensor in zip(scale, gradient, strict=True))
            distance = self.attack.objective(gradient, target)
            seen = Seen(guess, label, consensus)
            return distance + sum(prior(seen) for prior in self.attack.priors), distance

        def all_of_them(guess: Tensor, soft: Tensor, consensus: Tensor) -> tuple[Tensor, Tensor]:
            vectorised = vmap(one, in_dims=(0, 0, 0, 0, None))
            found: tuple[Tensor, Tensor] = vectorised(
                guess, labels if known else soft.softmax(2), targets, scales, consensus
            )
            return found

        return torch.compile(all_of_them) if self.attack.compiled else all_of_them

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

    def reconstruction(self, distance: float) -> Reconstruction:
        """What came of it; `distance` is that of the last guess, which the history does not hold yet."""
        assert self.ended is not None
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
            trace=Trace(
                numbers, trainable_parameters(self.state.model)[0], torch.stack(similarity), torch.stack(frames)
            ),
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
    units = state.units
    lowest, highest = units(torch.zeros_like(units.mean)), units(torch.ones_like(units.mean))
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
    return _ending(state, watches)


def _ending(state: State, watches: list[Watch]) -> list[Reconstruction]:
    """What came of every run; the last steps have not been evaluated yet."""
    with torch.no_grad():
        for watch in watches:
            for tensor, last in zip(state.moving, watch.last, strict=True):
                tensor[watch.number] = last
    state.closure()
    distances = state.distances
    for watch in watches:
        watch.remember()
    return [watch.reconstruction(distances[watch.number]) for watch in watches]
