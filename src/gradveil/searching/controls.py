"""What a search has to beat: untransformed images, and policies nobody searched for, on the images that judge its winners."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from optuna.trial import TrialState

from gradveil.parallel import RunJobs
from gradveil.randomness import derive_seed
from gradveil.scores import Estimate
from gradveil.searching.board import Board
from gradveil.searching.ledger import LedgerEntry
from gradveil.searching.result import Candidate, Control, SearchResult
from gradveil.searching.scoring import Goal, reach_goal
from gradveil.statistics import mean_interval
from gradveil.transforms import Policy
from gradveil.transforms.sampling import random_policies

IDENTITY = Policy.parse("identity")
# How many random policies stand for all of them; every image gets one.
RANDOM = 10
# How many controls there are.
CONTROLS = 2


def control_policies(seed: int, channels: int) -> dict[str, Policy]:
    """By name: identity, and a hybrid of random policies; not those of the search, which begins with its own seed."""
    drawn = random_policies(derive_seed(seed, "controls"), RANDOM, channels=channels)
    return {"identity": IDENTITY, "random": Policy(tuple(policy.members[0] for policy in drawn))}


@dataclass(frozen=True)
class Controls:
    """Measures the controls as `board` measures winners: on the last `fresh` images, or on all where there are no others."""

    board: Board
    fresh: int
    confidence: float

    def compare(self, work: RunJobs, result: SearchResult) -> SearchResult:
        """The result with controls, those that have finite scores."""
        controls = self.measure(work, result.best)
        spent = sum(one.privacy.evaluations + one.accuracy.evaluations for one in controls)
        return replace(result, controls=controls, evaluations=result.evaluations + spent)

    def measure(self, work: RunJobs, best: Sequence[Candidate]) -> tuple[Control, ...]:
        """Each control with the winners that are clearly more private."""
        board = self.board
        # Whether or not they would pass the filter.
        goal = Goal(all_batches=True, fresh=self.fresh, full=0 if self.fresh else board.scorer.images)
        policies = control_policies(board.scorer.seed, board.scorer.held_out.image_shape[0])
        known = {policy: board.ledger.latest(policy) for policy in policies.values()}
        jobs = [(p, goal, entry) for p, entry in known.items() if not goal.is_reached(entry, board.filter)]
        for policy, entry in work(
            partial(reach_goal, board.scorer, board.filter), jobs, describe=lambda job: str(job[0])
        ):
            board.ledger.write(policy, entry)
            board.ledger.close(policy, None, TrialState.PRUNED)
            known[policy] = entry
        found = {name: (p, goal.trim(known[p], board.filter)) for name, p in policies.items() if not known[p].failed}
        return tuple(self._control(name, *one, best) for name, one in found.items())

    def _control(self, name: str, policy: Policy, entry: LedgerEntry, best: Sequence[Candidate]) -> Control:
        values = entry.fresh or entry.full
        score = self.board.scorer.privacy_score
        # The chance that one of several looks better by luck is shared among them.
        strict = 1 - (1 - self.confidence) / max(1, len(best))
        return Control(
            name=name,
            policy=policy,
            privacy=Estimate(values, len(values) * score.evaluations),
            interval=mean_interval(values, self.confidence),
            accuracy=Estimate(entry.accuracy, sum(entry.rows)),
            beaten_by=tuple(one.policy for one in best if _is_below(one.privacy.values, values, strict)),
            gap=mean_interval(np.subtract(best[0].privacy.values, values).tolist(), self.confidence)
            if best and len(best[0].privacy.values) == len(values)
            else None,
        )


def _is_below(values: Sequence[float], others: Sequence[float], confidence: float) -> bool:
    """Whether a paired test says so; on other images, or too few, nothing can be said."""
    between = mean_interval(np.subtract(values, others).tolist(), confidence) if len(values) == len(others) else None
    return between is not None and between[1] < 0
