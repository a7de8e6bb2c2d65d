"""Who is allowed into the race: policies that leave images about as easy to tell apart as they were."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from gradveil.parallel import RunJobs, run_jobs
from gradveil.scores import NotFinite, Scorer
from gradveil.searching.ledger import LedgerEntry
from gradveil.transforms import Policy

# How many standard errors from the limit a verdict after a few batches must be.
CLEAR = 3.0


@dataclass(frozen=True)
class AccuracyFilter:
    """A limit on how redundant images may become, relative to untransformed ones.

    Per image S_acc is at best -1, when a model reacts to every image in its own way, whatever the number of classes. What it
    lacks to that is the redundancy, r = -1 - S_acc per image. A policy passes when its r is at most `allowance` times that of
    untransformed images in the same batches, whose scores are in `plain`.

    With `fixed`, the limit is that score whatever untransformed images have, as published: T_acc, which the mean over all batches
    has to reach.
    """

    plain: LedgerEntry
    allowance: float
    summed: bool  # the published code's variant sums over images instead of averaging
    fixed: float | None = None

    @classmethod
    def of(
        cls, scorer: Scorer, allowance: float, run: RunJobs = run_jobs, *, fixed: float | None = None
    ) -> "AccuracyFilter":
        """The filter for a scorer's untrained model and images."""
        jobs = [(Policy.parse("identity"), number) for number in range(scorer.distinct_batches)]
        found = sum_of_batches(jobs, dict(run(partial(measure_one, scorer), jobs)))
        if found.failed:
            raise NotFinite(found.failed)
        return cls(found, allowance, scorer.definition == "code", fixed)

    @property
    def rows(self) -> tuple[int, ...]:
        """Images of each batch."""
        return self.plain.rows

    @cached_property
    def untouched(self) -> tuple[float, ...]:
        """The r of untransformed images, batch by batch."""
        return _redundancies(self.plain, self.summed)

    @property
    def threshold(self) -> float:
        """The limit as a score: T_acc of Algorithm 1."""
        if self.fixed is not None:
            return self.fixed
        worst = -1 - self.allowance * statistics.fmean(self.untouched)
        return worst * statistics.fmean(self.rows) if self.summed else worst

    def passes(self, entry: LedgerEntry) -> bool:
        """Whether the policy is known to pass."""
        verdict = self.verdict(entry)
        return verdict is not None and verdict[0]

    def rejects(self, entry: LedgerEntry) -> bool:
        """Whether the policy is known to fail."""
        verdict = self.verdict(entry)
        return verdict is not None and not verdict[0]

    def verdict(self, entry: LedgerEntry) -> tuple[bool, int] | None:
        """Whether the policy passes, and after how many batches that was clear; None where more batches must tell."""
        if self.fixed is not None:
            whole = len(entry.accuracy) >= len(self.untouched)
            return (statistics.fmean(entry.accuracy) >= self.fixed, len(entry.accuracy)) if whole else None
        found = _redundancies(entry, self.summed)
        for count in range(1, len(found) + 1):
            mean = statistics.fmean(found[:count])
            gap = mean - self.allowance * statistics.fmean(self.untouched[:count])
            if count == len(self.untouched) or abs(gap) > CLEAR * self._spread(mean) / math.sqrt(count):
                return gap <= 0, count
        return None

    def _spread(self, mean: float) -> float:
        # Between batches; it grows with the redundancy itself.
        usual, spread = self._usual
        return max(1.0, self.allowance, mean / usual if usual > 0 else 1.0) * spread

    @cached_property
    def _usual(self) -> tuple[float, float]:
        spread = statistics.stdev(self.untouched) if len(self.untouched) > 1 else math.inf
        return statistics.fmean(self.untouched), spread


def measure_batch(scorer: Scorer, policy: Policy, batch: int) -> LedgerEntry:
    """S_acc of the policy on one batch."""
    found = scorer.accuracy(policy, range(batch, batch + 1))
    return LedgerEntry(accuracy=found.values, rows=(found.evaluations,))


# A policy, and the number of a batch.
BatchJob = tuple[Policy, int]


def measure_one(scorer: Scorer, job: BatchJob) -> tuple[BatchJob, LedgerEntry]:
    """As `measure_batch`, for a worker; a score that is not finite is part of the result."""
    try:
        with scorer.device.computing("--workers"):
            return job, measure_batch(scorer, *job)
    except NotFinite as error:
        return job, LedgerEntry(failed=str(error))


def sum_of_batches(jobs: Sequence[BatchJob], found: Mapping[BatchJob, LedgerEntry]) -> LedgerEntry:
    """What was found on all batches, in their order."""
    return sum((found[job] for job in jobs), LedgerEntry())


def _redundancies(entry: LedgerEntry, summed: bool) -> tuple[float, ...]:
    images = entry.rows if summed else (1,) * len(entry.rows)
    # Never negative; a rounding error must not make it so.
    return tuple(max(0.0, -1 - value / count) for value, count in zip(entry.accuracy, images, strict=True))
