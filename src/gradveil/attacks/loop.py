"""The loop that moves guesses until their gradients are the shared ones."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradveil.attacks.attack import OnIteration
from gradveil.attacks.batching import SharedBatch
from gradveil.attacks.evidence import Evidence
from gradveil.attacks.objectives import weigh
from gradveil.attacks.priors import Guess, consensus_of, looking_inside
from gradveil.attacks.reconstruction import Ending, Reconstruction, Trace, cosines
from gradveil.attacks.restarts import Restart
from gradveil.attacks.width import SEATS
from gradveil.client import Aggregate, share
from gradveil.models.losses import loss_function
from gradveil.models.normalizing import normalization
from gradveil.models.stochastic import drawing, stochastic_layers
from gradveil.types import Batch, to_bytes

if TYPE_CHECKING:
    from gradveil.attacks.inversion import Inversion

MOMENTS = 20  # of a run that its trace shows


class State:
    """The runs of one loop: what moves, and what has been seen."""

    def __init__(self, attack: "Inversion", runs: list[Restart], *, together: bool) -> None:
        self.attack, self.runs = attack, runs
        self.model = runs[0].evidence.model
        self.normalize = normalization(self.model, runs[0].evidence.image_shape[0])
        self.guess = torch.stack([run.guess for run in runs]).requires_grad_()
        self.soft = torch.stack([run.soft for run in runs]).requires_grad_()
        self.mean = self.guess.detach().clone()
        self.draws = torch.stack([run.draws for run in runs]).requires_grad_(attack.draws == "searched")
        self.distances = [math.nan] * len(runs)
        # Where the runs' gradients of the last evaluation are: stacked, and at which place.
        self.gradients: dict[int, tuple[tuple[Tensor, ...], int]] = {}
        self.kept = list(range(len(runs)))
        shared = (together or attack.compiled) and all(can_share(attack, run.evidence) for run in runs)
        self.batch = SharedBatch(self, self._fill_up(self.kept)) if shared else None

    def keep(self, numbers: Sequence[int]) -> None:
        """Evaluate these runs only, from now on, unless they look at the others."""
        if self.attack.is_grouped or self.attack.compiled:
            return
        self.kept = list(numbers)
        rows = self._fill_up(self.kept)
        if self.batch is not None and len(rows) != len(self.batch.rows):
            self.batch = SharedBatch(self, rows)

    def _fill_up(self, numbers: list[int]) -> list[int]:
        """A batch has a multiple of `SEATS` runs; the first is there as often as it takes."""
        return numbers if self.attack.compiled else numbers + numbers[:1] * (-len(numbers) % SEATS)

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

    def closure(self) -> list[float]:
        """The losses of all runs, and the gradient of everything that is free."""
        for tensor in self.free:
            tensor.grad = torch.zeros_like(tensor)
        if self.batch is None:
            rows, found = self.kept, self._evaluate_each()
        else:
            rows, found = self.batch.rows, self.batch.evaluate()
        losses = [math.nan] * len(self.runs)
        for row, (loss, distance) in zip(rows, found, strict=True):
            losses[row], self.distances[row] = loss, distance
        return losses

    def _evaluate_each(self) -> list[tuple[float, float]]:
        consensus = consensus_of(self.guess)
        found = []
        for number in self.kept:
            run = self.runs[number]
            own = [tensor.detach()[number].requires_grad_(tensor.requires_grad) for tensor in self.moving]
            with drawing(self.model, run.source(own[2])):
                loss, distance, gradient = self._loss(run, own[0], own[1], consensus)
            self.gradients[number] = tuple(tensor.detach()[None] for tensor in gradient), 0
            slopes = torch.autograd.grad(loss, [tensor for tensor in own if tensor.numel() and tensor.requires_grad])
            for tensor, slope in zip(self.free, slopes, strict=True):
                assert tensor.grad is not None
                tensor.grad[number] = slope
            found.append((loss.item(), distance.item()))
        return found

    def _loss(
        self, run: Restart, guess: Tensor, soft: Tensor, consensus: Tensor
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        client = run.evidence.client
        participants = client.users if isinstance(client, Aggregate) else 1
        current = Guess(guess, run.label_of(soft), consensus, known=run.evidence.statistics, participants=participants)
        pixels = self.pixels(guess)
        if self.attack.simulate is not None:
            pixels = self.attack.simulate(pixels, run.chance)
        inside = any(prior.looks_inside for prior in self.attack.priors)
        with looking_inside(self.model, current) if inside else nullcontext():
            shared = run.evidence.client(self.model, Batch(pixels, current.labels))
        gradient = tuple(shared.values())
        distance = self.attack.objective(weigh(run.factors, gradient), run.target)
        return distance + sum(prior(current) for prior in self.attack.priors), distance, gradient

    def similarity(self, number: int) -> Tensor:
        """Per-parameter cosine of a run's gradient as it was last evaluated."""
        stacked, place = self.gradients[number]
        return cosines(tuple(tensor[place] for tensor in stacked), self.runs[number].evidence.target)


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
        labels = self.run.labels
        if labels is None:
            labels = loss_function(self.state.model).hard_labels(soft)
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


def can_share(attack: "Inversion", evidence: Evidence) -> bool:
    """Whether its runs can go through one network at once: what is random or looks inside goes by itself."""
    plain = attack.simulate is None and not any(prior.looks_inside for prior in attack.priors)
    return plain and not stochastic_layers(evidence.model) and evidence.client is share


def minimise(
    attack: "Inversion", runs: list[Restart], on_iteration: OnIteration | None, *, together: bool = False
) -> list[Reconstruction]:
    """All runs in one loop; `together` in one batch where they can share it."""
    state = State(attack, runs, together=together)
    lowest, highest = (state.normalize(value(state.normalize.mean)) for value in (torch.zeros_like, torch.ones_like))
    step = attack.optimizer.start(state.free, attack.iterations)
    watches = [Watch(state, number) for number in range(len(runs))]
    iteration = 0
    while running := [watch for watch in watches if watch.ended is None]:
        state.keep([watch.number for watch in running])
        step(state.closure, state.kept)
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
    state.keep(range(len(runs)))
    state.closure()
    for watch in watches:
        watch.remember()
    return [watch.reconstruction() for watch in watches]
