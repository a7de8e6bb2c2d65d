"""What a search knows of the policies it has drawn."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from gradveil.scores import Estimate, Scorer
from gradveil.searching.accuracy_filter import AccuracyFilter
from gradveil.searching.ledger import Ledger, LedgerEntry
from gradveil.searching.scoring import Goal
from gradveil.transforms import Policy


@dataclass(frozen=True)
class Board:
    """The study as far as this search has asked for it; `goals` say how far each drawn policy has come."""

    scorer: Scorer
    ledger: Ledger
    filter: AccuracyFilter
    goals: dict[Policy, Goal] = field(default_factory=dict)

    def eligible(self, policies: Sequence[Policy]) -> list[Policy]:
        """Those that have finite scores and are not known to fail the filter."""
        entries = [(policy, self.requested_entry(policy)) for policy in policies]
        return [policy for policy, entry in entries if not entry.failed and not self.filter.rejects(entry)]

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
        return (privacy, self.accuracy(policy).mean) if self.ledger.objectives > 1 else (privacy,)
