"""What a search knows of the policies it has drawn."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from gradveil.scores import Estimate, Scorer
from gradveil.search.accuracy_filter import AccuracyFilter
from gradveil.search.ledger import Entry, Ledger
from gradveil.search.result import Seen
from gradveil.search.scoring import Goal
from gradveil.statistics import mean_interval
from gradveil.transforms import Policy


@dataclass(frozen=True)
class Board:
    """The study as far as this search has asked for it; `goals` say how far each drawn policy has come."""

    scorer: Scorer
    ledger: Ledger
    filter: AccuracyFilter
    goals: dict[Policy, Goal] = field(default_factory=dict)

    def sound(self, policies: Sequence[Policy]) -> list[Policy]:
        """Those that passed the filter and have finite scores."""
        entries = [(policy, self.ledger[policy]) for policy in policies]
        return [policy for policy, entry in entries if not entry.failed and self.filter.passes(entry)]

    def used(self, policy: Policy) -> Entry:
        """What this plan asked of the policy; the study may hold more."""
        return self.goals[policy].part_of(self.ledger[policy], self.filter)

    def race_estimate(self, policy: Policy) -> Estimate:
        """S_pri as the race sees it."""
        used = self.used(policy)
        return Estimate(used.full or used.quick, self.gradients(policy))

    def accuracy(self, policy: Policy) -> Estimate:
        """S_acc, batch by batch."""
        used = self.used(policy)
        return Estimate(used.accuracy, sum(used.rows))

    def gradients(self, policy: Policy) -> int:
        """Those that S_pri took."""
        used, score = self.used(policy), self.scorer.privacy_score
        quick = score.quick.evaluations if score.quick else 0
        return len(used.quick) * quick + (len(used.full) + len(used.fresh)) * score.evaluations

    def gradients_spent(self) -> int:
        """Gradients of everything so far, S_acc's included."""
        return sum(self.filter.rows) + sum(self.gradients(p) + sum(self.used(p).rows) for p in self.goals)

    def trial_values(self, policy: Policy) -> tuple[float, ...]:
        """What the study says of the policy, one figure per objective."""
        fresh = self.used(policy).fresh
        privacy = statistics.fmean(fresh) if fresh else self.race_estimate(policy).mean
        return (privacy, self.accuracy(policy).mean)[: self.ledger.objectives]

    def paired(self, one: Policy, other: Policy) -> tuple[Sequence[float], Sequence[float]]:
        """The scores of two policies on the images that both were raced on."""
        first, second = self.used(one), self.used(other)
        pairs = [(first.full, second.full), (first.quick, second.quick)]
        a, b = next((pair for pair in pairs if all(pair)), ((), ()))
        seen = min(len(a), len(b))
        return a[:seen], b[:seen]

    def seen(self, policy: Policy, confidence: float) -> Seen:
        """The policy as the result lists it."""
        accuracy = self.accuracy(policy).mean
        if not self.filter.passes(self.ledger[policy]):
            return Seen(policy, accuracy, None, None, 0)
        raced = self.race_estimate(policy)
        return Seen(policy, accuracy, raced.mean, mean_interval(raced.values, confidence), raced.n)
