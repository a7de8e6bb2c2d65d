"""One job of a search: bring a policy up to what a round asks of it."""

from dataclasses import dataclass, replace

from gradveil.scores import NotFinite, Scorer
from gradveil.searching.accuracy_filter import AccuracyFilter, measure_batch
from gradveil.searching.ledger import LedgerEntry
from gradveil.transforms import Policy


@dataclass(frozen=True)
class Goal:
    """What a policy should have: quick and full scores of the first images, full ones of the last.

    With `accuracy`, S_acc on as many batches as the filter needs for its verdict, or on `all_batches`; who fails needs no more.
    """

    quick: int = 0
    full: int = 0
    fresh: int = 0
    pixels: bool = False
    accuracy: bool = False
    all_batches: bool = False

    def is_reached(self, entry: LedgerEntry, accuracy_filter: AccuracyFilter) -> bool:
        """Whether nothing more is to be computed."""
        if entry.failed or (self.accuracy and accuracy_filter.rejects(entry)):
            return True
        if self.accuracy and not accuracy_filter.passes(entry):
            return False
        batches = len(accuracy_filter.untouched) if self.all_batches else 0
        have = (len(entry.quick), len(entry.full), len(entry.fresh), bool(entry.pixels), len(entry.accuracy))
        asked = (self.quick, self.full, self.fresh, self.pixels, batches)
        return all(a >= b for a, b in zip(have, asked, strict=True))

    def trim(self, entry: LedgerEntry, accuracy_filter: AccuracyFilter) -> LedgerEntry:
        """The part of `entry` that this goal asked for."""
        if entry.failed:
            return entry
        verdict = accuracy_filter.verdict(entry) if self.accuracy else (True, 0)
        batches = len(entry.accuracy) if verdict is None or (self.all_batches and verdict[0]) else verdict[1]
        return replace(
            entry,
            accuracy=entry.accuracy[:batches],
            rows=entry.rows[:batches],
            quick=entry.quick[: self.quick],
            full=entry.full[: self.full],
            fresh=entry.fresh[: self.fresh],
        )


# A policy, what it should have, and what it has.
Job = tuple[Policy, Goal, LedgerEntry]


def describe_job(job: Job) -> str:
    """Which policy it is about, for messages."""
    return f"policy {job[0]}"


def reach_goal(scorer: Scorer, accuracy_filter: AccuracyFilter, job: Job) -> tuple[Policy, LedgerEntry]:
    """The policy with everything that its goal asks for."""
    with scorer.device.computing("--workers"):
        return _reach_goal(scorer, accuracy_filter, job)


def _reach_goal(scorer: Scorer, accuracy_filter: AccuracyFilter, job: Job) -> tuple[Policy, LedgerEntry]:
    policy, goal, entry = job
    try:
        while goal.accuracy and accuracy_filter.verdict(entry) is None:
            entry += measure_batch(scorer, policy, len(entry.accuracy))
        if goal.accuracy and accuracy_filter.rejects(entry):
            return policy, entry
        while goal.all_batches and len(entry.accuracy) < len(accuracy_filter.untouched):
            entry += measure_batch(scorer, policy, len(entry.accuracy))
        if goal.pixels and not entry.pixels:
            entry += LedgerEntry(pixels=scorer.pixels(policy))
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
