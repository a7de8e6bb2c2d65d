"""Those who compute what a search asks for, and write it down."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gradveil.parallel import RunJobs, run_in_bundles
from gradveil.progress import Progress
from gradveil.scores import Scorer
from gradveil.searching.accuracy_filter import AccuracyFilter, BatchJob, measure_one, sum_of_batches
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
            run = self.run
            if self.count > 1:
                run = partial(run_in_bundles, self.run, workers=self.count, expected=len(lacking))
            for policy, entry in run(partial(reach_goal, self.scorer, self.filter), jobs, describe=describe_job):
                self.ledger.write(policy, entry)
                advance(1)

    def _measure_batches(self, goals: Mapping[Policy, Goal]) -> None:
        """S_acc with batches side by side: where all are wanted, and where policies are fewer than workers."""
        self._measure_all_batches([policy for policy, goal in goals.items() if goal.all_batches and not goal.accuracy])
        asked = [policy for policy, goal in goals.items() if goal.accuracy]
        # Most verdicts are clear at once. Those that are not need many batches: then nobody waits for anybody.
        for each in (1, len(self.filter.untouched)):
            unsure = [policy for policy in asked if self._is_unsure(self.ledger[policy])]
            if 0 < len(unsure) < self.count:
                self._measure_until_sure(unsure, each * -(-self.count // len(unsure)))

    def _measure_until_sure(self, policies: Sequence[Policy], each: int) -> None:
        """At most so many more batches of each, until it has its verdict; a worker takes one of who has fewest under way."""
        handed_out = {policy: len(self.ledger[policy].accuracy) for policy in policies}
        most = {policy: min(count + each, len(self.filter.untouched)) for policy, count in handed_out.items()}
        ahead: dict[BatchJob, LedgerEntry] = {}  # done before an earlier batch of the same policy

        def under_way(policy: Policy) -> int:
            return handed_out[policy] - len(self.ledger[policy].accuracy)

        def jobs() -> Iterator[BatchJob]:
            while open_ones := [p for p in policies if handed_out[p] < most[p] and self._is_unsure(self.ledger[p])]:
                policy = min(open_ones, key=under_way)
                handed_out[policy] += 1
                yield policy, handed_out[policy] - 1

        for (policy, number), entry in self.run(partial(measure_one, self.scorer), jobs()):
            ahead[policy, number] = entry
            # In their order, and what came too much is not kept: one worker would not have it.
            while self._is_unsure(known := self.ledger[policy]) and (
                following := ahead.pop((policy, len(known.accuracy)), None)
            ):
                self.ledger.write(policy, known + following)

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
