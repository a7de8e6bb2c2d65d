"""Rebuild images by searching for ones whose gradient is the shared one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from gradveil.attacks.attack import Attack, KnownDefense, LabelKnowledge, OnIteration
from gradveil.attacks.evidence import Evidence
from gradveil.attacks.loop import minimise
from gradveil.attacks.objectives import Objective, Weighing
from gradveil.attacks.optimizers import Optimizer
from gradveil.attacks.priors import BatchNormStatistics, GroupConsistency, KnownStatistics, Prior
from gradveil.attacks.reconstruction import Reconstruction
from gradveil.attacks.restarts import Restart
from gradveil.attacks.sprint import may_match, sprint
from gradveil.attacks.starts import STARTS
from gradveil.attacks.width import ENOUGH, most_together
from gradveil.errors import GradveilError
from gradveil.naming import lookup

# Of what a guess's batch statistics are off, beside a distance of gradients.
STATISTICS_WEIGHT = 0.1
# Images (B, C, H, W) in [0, 1] -> what the participant makes of them; differentiable, may draw at random.
Simulation = Callable[[Tensor, torch.Generator], Tensor]
# What is known of what a network drew at random, in the order of the draws: nothing (drawn afresh for every guess), searched
# for together with the image, or read off the evidence.
KnownDraws = Literal["fresh", "searched"] | Callable[[Evidence], Tensor]


@dataclass(frozen=True)
class Inversion(Attack):
    """Search for images whose gradient is the shared one: minimise objective(gradient of the guess, shared gradient) + priors.

    The guess lives in the model's normalised units. Learning rates and prior weights are published in these units.

    - `iterations` of a run, and `restarts`: the best of up to so many runs wins.
    - `boxed` keeps the guess inside [0, 1] pixels.
    - `start` is the first guess: noise, zeros, pattern, class-mean, public-image or informed.
    - `good_enough` ends the attack: a run got to this fraction of the distance of an all-zero gradient.
    - `patience` ends a run on a plateau: so many iterations did not bring its best distance below `progress` times what it was.
    - `weighings` say what of the gradient counts.
    - `simulate` is what the participant does to its images first.
    - `draws` is what is known of what the network drew at random.
    - `averaging` takes the running mean of the guesses over about this fraction of the run. Signed steps jump around the image
      that they are after, and their mean is nearer to it.
    - `sprints` are short runs of LBFGS before the search, on networks without max-pooling. Where one matches, the attack is
      over; else the search has the iterations that they left, every evaluation counted.
    - `compiled` runs the loop through `torch.compile`. It needs a C++ compiler and pays for long runs. Simulations, priors that
      look inside and local training run as they are.

        attack = Inversion(cosine_distance, Adam(0.1), (TotalVariation(1e-4),), iterations=200)
        reconstruction = attack(Evidence(model, gradients, (1, 28, 28), labels=labels), seed=0)
    """

    can_simulate: ClassVar[bool] = True
    objective: Objective
    optimizer: Optimizer
    priors: tuple[Prior, ...] = ()
    iterations: int = 4800
    restarts: int = 1
    boxed: bool = True
    start: str = "noise"
    labels: LabelKnowledge = "known"
    weighings: tuple[Weighing, ...] = ()
    simulate: Simulation | None = None
    draws: KnownDraws = "fresh"
    averaging: float = 0.0
    good_enough: float = 0.0
    patience: int | None = None
    progress: float = 0.5
    sprints: int = 0
    compiled: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if min(self.iterations, self.restarts) < 1:
            raise GradveilError(f"expected at least 1 iteration, 1 restart, got {self.iterations}, {self.restarts}")
        if not 0 <= self.averaging <= 1:
            raise GradveilError(f"averaging is a fraction of the run from 0 to 1, got {self.averaging:g}")
        if self.labels not in get_args(LabelKnowledge):
            raise GradveilError(f"expected labels {', '.join(get_args(LabelKnowledge))}, got {self.labels!r}")
        lookup(STARTS, self.start, "start")

    def __call__(self, evidence: Evidence, *, seed: int = 0, on_iteration: OnIteration | None = None) -> Reconstruction:
        """The best of the restarts."""
        if self.sprints and may_match(evidence.model):
            found, spent = sprint(self, evidence, seed=seed, on_iteration=on_iteration)
            rest = replace(self, sprints=0, iterations=max(1, self.iterations - spent))
            return found or rest(evidence, seed=seed, on_iteration=on_iteration)
        restarts = [Restart.of(self, evidence, seed, restart) for restart in range(self.restarts)]
        if self.is_grouped:
            return best_of(minimise(self, restarts, on_iteration, together=True))
        if self.restarts >= ENOUGH and not self.good_enough:
            return best_of(minimise_in_lots(restarts, on_iteration))
        runs: list[Reconstruction] = []
        for run in restarts:
            runs += minimise(self, [run], on_iteration)
            if runs[-1].ended == "matched":
                break
        return best_of(runs)

    @property
    def steps(self) -> int:
        return self.iterations * self.restarts

    @property
    def rebuilds_private_images(self) -> bool:
        return self.simulate is not None

    def with_known_statistics(self) -> Attack:
        """The same, and the guess has the statistics of the private batch; those of the network say nothing more."""
        own = next(
            (prior for prior in self.priors if isinstance(prior, KnownStatistics)), KnownStatistics(STATISTICS_WEIGHT)
        )
        others = tuple(prior for prior in self.priors if not isinstance(prior, BatchNormStatistics | KnownStatistics))
        return replace(self, priors=(*others, own))

    def adapt_to(self, defense: KnownDefense, evidence: Evidence) -> Attack:
        return defense.adapt(self, evidence)

    @property
    def is_grouped(self) -> bool:
        """Whether restarts look at each other."""
        return any(isinstance(prior, GroupConsistency) for prior in self.priors)


def best_of(found: Sequence[Reconstruction]) -> Reconstruction:
    """The one that matches best, a run that diverged only when all did; with how many there were and how many diverged."""
    best = min(found, key=lambda one: (one.diverged, one.distance))
    return replace(best, restarts=len(found), restarts_diverged=sum(one.diverged for one in found))


def minimise_in_lots(runs: Sequence[Restart], on_iteration: OnIteration | None) -> list[Reconstruction]:
    """Runs of attacks that differ in smoothness at most, so many to a loop."""
    most = most_together(runs[0].evidence.device)
    lots = [list(runs[at : at + most]) for at in range(0, len(runs), most)]
    return [one for lot in lots for one in minimise(lot[0].attack, lot, on_iteration, together=True)]
