"""Where the policies of a search come from: drawn at random as published, or proposed by one of Optuna's samplers."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler

from gradveil.randomness import derive_seed
from gradveil.transforms import LIBRARY, Policy
from gradveil.transforms.sampling import distinct_policies

GENERATION = 20  # policies a guided sampler proposes before it learns their scores, whatever the number of workers
NOTHING = "none"  # in place of a second or third operation

# Privacy (lower is better) and accuracy (higher is better).
ScorePair = tuple[float, float]

_OPERATIONS = tuple(str(index) for index in range(len(LIBRARY)))
SPACE: dict[str, BaseDistribution] = {
    "first": CategoricalDistribution(_OPERATIONS),
    "second": CategoricalDistribution((*_OPERATIONS, NOTHING)),
    "third": CategoricalDistribution((*_OPERATIONS, NOTHING)),
}
# As policies stand in the study, where untransformed images may be one of them.
RECORDED: dict[str, BaseDistribution] = SPACE | {"first": CategoricalDistribution((*_OPERATIONS, NOTHING))}


def parameters(policy: Policy) -> dict[str, str]:
    """The policy as a point of `RECORDED`; none where it is not one: a hybrid, or with an operation of the user's own."""
    names = [operation.spelling for operation in policy.members[0]]
    if len(policy) > 1 or len(names) > len(RECORDED) or not set(names) <= set(_OPERATIONS):
        return {}
    return dict(zip(RECORDED, [*names, NOTHING, NOTHING, NOTHING], strict=False))


class Sampler(Protocol):
    """Proposes policies and learns from their scores; policies may hold operations of your own."""

    def propose(self, count: int) -> list[Policy]:
        """At most `count` policies; none where there are no more."""
        ...

    def tell(self, scores: Mapping[Policy, ScorePair]) -> None:
        """The scores of those proposed last that have any."""
        ...


# From a seed and the number of channels of the images.
MakeSampler = Callable[[int, int], Sampler]


class RandomSampler:
    """Algorithm 1: every policy is drawn alike, whatever the scores of the others."""

    def __init__(self, seed: int, channels: int) -> None:
        self._policies = distinct_policies(seed, channels)

    def propose(self, count: int) -> list[Policy]:
        return list(itertools.islice(self._policies, count))

    def tell(self, scores: Mapping[Policy, ScorePair]) -> None:
        """Nothing is learned."""


@dataclass
class GuidedSampler:
    """Policies proposed by an Optuna sampler that learns the scores of those before.

    The sampler works on a study in memory. Proposals depend on the seed and the scores alone, so a search that was killed
    proposes the same again and finds their scores in its own study.
    """

    make: Callable[[int], BaseSampler]
    directions: tuple[str, ...]
    seed: int
    channels: int
    _generation: int = 0
    _scores: dict[Policy, ScorePair] = field(default_factory=dict)
    _proposed: set[Policy] = field(default_factory=set)
    _waiting: list[tuple[optuna.Trial, Policy]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._study = optuna.create_study(directions=self.directions)

    def propose(self, count: int) -> list[Policy]:
        """Up to `GENERATION` policies that do something none before did; fewer when the sampler only repeats itself."""
        self._study.sampler = self.make(derive_seed(self.seed, "generation", self._generation) % 2**32)
        self._generation += 1
        fresh: dict[Policy, Policy] = {}
        for _ in range(20 * GENERATION):
            if len(fresh) == min(count, GENERATION):
                break
            trial = self._study.ask(SPACE)
            policy = Policy.parse("-".join(op for op in trial.params.values() if op != NOTHING))
            same = policy.canonical(self.channels)
            if same in self._scores:
                self._tell(trial, self._scores[same])
                continue
            if any(same.members) and same not in self._proposed:
                fresh.setdefault(same, policy)
            self._waiting.append((trial, same))
        self._proposed |= fresh.keys()
        return list(fresh.values())

    def tell(self, scores: Mapping[Policy, ScorePair]) -> None:
        """The scores of what was proposed last; what is missing had none and counts as bad as the worst."""
        self._scores |= {policy.canonical(self.channels): pair for policy, pair in scores.items()}
        if self._scores:
            pairs = self._scores.values()
            worst = max(privacy for privacy, _ in pairs), min(accuracy for _, accuracy in pairs)
            for trial, same in self._waiting:
                self._tell(trial, self._scores.get(same, worst))
            self._waiting.clear()

    def _tell(self, trial: optuna.Trial, scores: ScorePair) -> None:
        self._study.tell(trial, scores[: len(self.directions)])


SAMPLERS: dict[str, MakeSampler] = {
    "random": RandomSampler,
    "tpe": lambda seed, channels: GuidedSampler(lambda s: TPESampler(seed=s), ("minimize",), seed, channels),
    "nsga2": lambda seed, channels: GuidedSampler(
        lambda s: NSGAIISampler(seed=s, population_size=GENERATION), ("minimize", "maximize"), seed, channels
    ),
}
