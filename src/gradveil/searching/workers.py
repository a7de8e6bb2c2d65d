"""Those who compute what a search asks for, and write it down."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gradveil.parallel import RunJobs, run_in_bundles
from gradveil.progress import Progress
from gradveil.scores import Scorer
from gradveil.searching.accuracy_filter import AccuracyFilter, measure_one, sum_of_batches
from gradveil.searching.ledger import Ledger, LedgerEntry
from gradveil.searching.scoring import Goal, describe_job, reach_goal
from gradveil.transforms import Policy


@dataclass(frozen=True)
class Workers:
    """`count` processes that bring policies to their goals; what they find is in the ledger, the same for any `count`."""

    scorer: Scorer
    filter: AccuracyFilter
    ledger: Ledger
    run: RunJobs
    count: int
    progress: Progress

    def reach(self, title: str, goals: Mapping[Policy, Goal]) -> None:
        """Compute what policies lack to their goals, and keep it."""
        self._measure_batches(goals)
        lacking = [p for p, goal in goals.items() if not goal.is_reached(self.ledger[p], self.filter)]
        if self.ledger.shared and lacking:  # machines that share a study begin at different places
            start = secrets.randbelow(len(lacking))
            lacking = lacking[start:] + lacking[:start]
        with self.progress(title, len(goals), "policies") as advance:
            advance(len(goals) - len(lacking))
            jobs = (
                (policy, goals[policy], entry)
                for policy in lacking
                if not goals[policy].is_reached(entry := self.ledger.latest(policy), self.filter)
            )
            # One worker is this process: it need not wait for its next job.
            run = self.run if self.count == 1 else partial(run_in_bundles, self.run)
            for policy, entry in run(partial(reach_goal, self.scorer, self.filter), jobs, describe=describe_job):
                self.ledger.write(policy, entry)
                advance(1)

    def _measure_batches(self, goals: Mapping[Policy, Goal]) -> None:
        """S_acc with batches side by side: where all are wanted, and where policies are fewer than workers."""
        self._measure_all_batches([policy for policy, goal in goals.items() if goal.all_batches and not goal.accuracy])
        asked = [policy for policy, goal in goals.items() if goal.accuracy]
        while unsure := [policy for policy in asked if self._is_unsure(self.ledger[policy])]:
            if len(unsure) >= self.count:
                return
            each, last = -(-self.count // len(unsure)), len(self.filter.untouched)
            begun = {policy: len(self.ledger[policy].accuracy) for policy in unsure}
            jobs = [(p, number) for p, start in begun.items() for number in range(start, min(start + each, last))]
            found = dict(self.run(partial(measure_one, self.scorer), jobs))
            for policy, number in jobs:
                if self._is_unsure(self.ledger[policy]):  # what came too much is not kept: one worker would not have it
                    self.ledger.write(policy, self.ledger[policy] + found[policy, number])

    def _measure_all_batches(self, policies: Sequence[Policy]) -> None:
        begun = {policy: len(self.ledger[policy].accuracy) for policy in policies if not self.ledger[policy].failed}
        jobs = [(p, number) for p, start in begun.items() for number in range(start, len(self.filter.untouched))]
        found = dict(self.run(partial(measure_one, self.scorer), jobs))
        for policy in begun:
            if own := [job for job in jobs if job[0] == policy]:
                self.ledger.write(policy, self.ledger[policy] + sum_of_batches(own, found))

    def _is_unsure(self, entry: LedgerEntry) -> bool:
        """Whether more batches of S_acc must tell."""
        return not entry.failed and self.filter.verdict(entry) is None
