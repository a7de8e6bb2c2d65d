"""What a search knows of the policies it has drawn."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from gradveil.scores import Estimate, Scorer
from gradveil.searching.accuracy_filter import AccuracyFilter
from gradveil.searching.ledger import Ledger, LedgerEntry
from gradveil.searching.result import PolicyOutcome
from gradveil.searching.scoring import Goal
from gradveil.statistics import mean_interval
from gradveil.transforms import Policy


@dataclass(frozen=True)
class Board:
    """The study as far as this search has asked for it; `goals` say how far each drawn policy has come."""

    scorer: Scorer
    ledger: Ledger
    filter: AccuracyFilter
    goals: dict[Policy, Goal] = field(default_factory=dict)

    def eligible(self, policies: Sequence[Policy]) -> list[Policy]:
        """Those that passed the filter and have finite scores."""
        entries = [(policy, self.ledger[policy]) for policy in policies]
        return [policy for policy, entry in entries if not entry.failed and self.filter.passes(entry)]

    def requested_entry(self, policy: Policy) -> LedgerEntry:
        """What this plan asked for; the study may hold more."""
        return self.goals[policy].trim(self.ledger[policy], self.filter)

    def race_estimate(self, policy: Policy) -> Estimate:
        """S_pri as the race sees it."""
        entry = self.requested_entry(policy)
        return Estimate(entry.full or entry.quick, self.gradients(policy))

    def accuracy(self, policy: Policy) -> Estimate:
        """S_acc, batch by batch."""
        entry = self.requested_entry(policy)
        return Estimate(entry.accuracy, sum(entry.rows))

    def gradients(self, policy: Policy) -> int:
        """How many S_pri took."""
        entry, score = self.requested_entry(policy), self.scorer.privacy_score
        quick = score.quick.evaluations if score.quick else 0
        return len(entry.quick) * quick + (len(entry.full) + len(entry.fresh)) * score.evaluations

    def gradients_spent(self) -> int:
        """Gradients of everything so far, S_acc's included."""
        return sum(self.filter.rows) + sum(self.gradients(p) + sum(self.requested_entry(p).rows) for p in self.goals)

    def trial_values(self, policy: Policy) -> tuple[float, ...]:
        """What the study says of the policy, one figure per objective."""
        fresh = self.requested_entry(policy).fresh
        privacy = statistics.fmean(fresh) if fresh else self.race_estimate(policy).mean
        return (privacy, self.accuracy(policy).mean)[: self.ledger.objectives]

    def paired_scores(self, one: Policy, other: Policy) -> tuple[Sequence[float], Sequence[float]]:
        """The scores of two policies on the images that both were raced on."""
        first, second = self.requested_entry(one), self.requested_entry(other)
        pairs = [(first.full, second.full), (first.quick, second.quick)]
        a, b = next((pair for pair in pairs if all(pair)), ((), ()))
        seen = min(len(a), len(b))
        return a[:seen], b[:seen]

    def outcome(self, policy: Policy, confidence: float) -> PolicyOutcome:
        """The policy as the result lists it."""
        accuracy = self.accuracy(policy).mean
        if not self.filter.passes(self.ledger[policy]):
            return PolicyOutcome(policy, accuracy, None, None, 0)
        raced = self.race_estimate(policy)
        return PolicyOutcome(policy, accuracy, raced.mean, mean_interval(raced.values, confidence), raced.n)
