"""One job of a search: bring a policy up to what a round asks of it."""

from dataclasses import dataclass, replace

from gradveil.scores import NotFinite, Scorer
from gradveil.searching.accuracy_filter import AccuracyFilter, measure_batch
from gradveil.searching.ledger import LedgerEntry
from gradveil.transforms import Policy

Job = tuple[Policy, LedgerEntry]


@dataclass(frozen=True)
class Goal:
    """What a policy that passes the filter should have: quick and full scores of the first images, full ones of the last."""

    quick: int = 0
    full: int = 0
    fresh: int = 0
    all_batches: bool = False

    def is_reached(self, entry: LedgerEntry, accuracy_filter: AccuracyFilter) -> bool:
        """Whether nothing more is to be computed."""
        if entry.failed or accuracy_filter.rejects(entry):
            return True
        batches = len(accuracy_filter.untouched) if self.all_batches else 1
        have = (len(entry.quick), len(entry.full), len(entry.fresh), len(entry.accuracy))
        asked = (self.quick, self.full, self.fresh, batches)
        return accuracy_filter.passes(entry) and all(a >= b for a, b in zip(have, asked, strict=True))

    def trim(self, entry: LedgerEntry, accuracy_filter: AccuracyFilter) -> LedgerEntry:
        """The part of `entry` that this goal asked for."""
        verdict = accuracy_filter.verdict(entry)
        if verdict is None or entry.failed:
            return entry
        passed, batches = verdict
        batches = len(entry.accuracy) if self.all_batches and passed else batches
        return replace(
            entry,
            accuracy=entry.accuracy[:batches],
            rows=entry.rows[:batches],
            quick=entry.quick[: self.quick],
            full=entry.full[: self.full],
            fresh=entry.fresh[: self.fresh],
        )


def reach_goal(goal: Goal, scorer: Scorer, accuracy_filter: AccuracyFilter, job: Job) -> Job:
    """The policy with everything that `goal` asks for."""
    with scorer.device.computing("--workers"):
        return _reach_goal(goal, scorer, accuracy_filter, job)


def _reach_goal(goal: Goal, scorer: Scorer, accuracy_filter: AccuracyFilter, job: Job) -> Job:
    policy, entry = job
    try:
        while accuracy_filter.verdict(entry) is None:
            entry += measure_batch(scorer, policy, len(entry.accuracy))
        if accuracy_filter.rejects(entry):
            return policy, entry
        while goal.all_batches and len(entry.accuracy) < len(accuracy_filter.untouched):
            entry += measure_batch(scorer, policy, len(entry.accuracy))
        if len(entry.quick) < goal.quick:
            found = scorer.privacy(policy, range(len(entry.quick), goal.quick), quick=True)
            entry += LedgerEntry(quick=found.values)
        if len(entry.full) < goal.full:
            entry += LedgerEntry(full=scorer.privacy(policy, range(len(entry.full), goal.full)).values)
        if len(entry.fresh) < goal.fresh:
            last = range(scorer.images - goal.fresh, scorer.images - len(entry.fresh))
            entry += LedgerEntry(fresh=scorer.privacy(policy, last).values)
    except NotFinite as error:
        entry += LedgerEntry(failed=str(error))
    return policy, entry
