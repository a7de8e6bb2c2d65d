"""What a search has to beat: untransformed images, and policies nobody searched for, on the images that judge its winners."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from optuna.trial import TrialState

from gradveil.randomness import derive_seed
from gradveil.scores import Estimate
from gradveil.searching.board import Board
from gradveil.searching.ledger import LedgerEntry
from gradveil.searching.result import Candidate, Control, SearchResult
from gradveil.searching.scoring import Goal
from gradveil.searching.workers import Workers
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

    def compare(self, workers: Workers, result: SearchResult) -> SearchResult:
        """The result with controls, those that have finite scores."""
        controls = self.measure(workers, result.best)
        return replace(
            result, controls=controls, evaluations=result.evaluations + sum(map(gradients_of_control, controls))
        )

    def measure(self, workers: Workers, best: Sequence[Candidate]) -> tuple[Control, ...]:
        """Each control with the winners that are clearly more private."""
        board, ledger = self.board, self.board.ledger
        # Whether or not they would pass the filter.
        goal = Goal(all_batches=True, fresh=self.fresh, full=0 if self.fresh else board.scorer.images)
        policies = control_policies(board.scorer.seed, board.scorer.held_out.image_shape[0])
        known, plain = ledger.latest(IDENTITY), board.filter.plain
        if len(known.accuracy) < len(plain.accuracy):  # the filter has measured it
            ledger.write(IDENTITY, replace(known, accuracy=plain.accuracy, rows=plain.rows))
        workers.reach("controls", dict.fromkeys(policies.values(), goal))
        for policy in policies.values():
            ledger.close(policy, None, TrialState.PRUNED)
        entries = {name: goal.trim(ledger[policy], board.filter) for name, policy in policies.items()}
        return tuple(
            self._control(name, policies[name], entry, best) for name, entry in entries.items() if not entry.failed
        )

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


def gradients_of_control(control: Control) -> int:
    """What it took. S_acc of untransformed images is the filter's, which counts it."""
    return control.privacy.evaluations + (0 if control.policy == IDENTITY else control.accuracy.evaluations)


def _is_below(values: Sequence[float], others: Sequence[float], confidence: float) -> bool:
    """Whether a paired test says so; on other images, or too few, nothing can be said."""
    between = mean_interval(np.subtract(values, others).tolist(), confidence) if len(values) == len(others) else None
    return between is not None and between[1] < 0
