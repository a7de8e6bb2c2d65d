"""Algorithm 1 of Gao et al. (2021), as published: every policy is scored in full, and nothing says how sure the order is.

The race of this package finds as private policies for far fewer gradients (docs/search.md). This one is there to compare with.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from scipy.special import ndtri

from gradveil.errors import GradveilError
from gradveil.naming import lookup
from gradveil.scores import Scorer
from gradveil.searching.belief import believe
from gradveil.searching.board import Board
from gradveil.searching.conclusion import close_trials, conclude
from gradveil.searching.controls import Controls
from gradveil.searching.plan import MOST_DRAWS, check_confidence
from gradveil.searching.race import RaceRound
from gradveil.searching.result import SearchResult, disjoint_hybrid
from gradveil.searching.sampling import RandomSampler
from gradveil.searching.scoring import Goal
from gradveil.searching.workers import Workers
from gradveil.transforms import Policy

# T_acc by definition. The code's -85 is a sum over the images of a batch whose label is new, of which there are about 63 among
# 100 of CIFAR-100. As a mean over images that is -85 / 63. With fewer classes the code's threshold filters nothing.
THRESHOLDS = {"code": -85.0, "paper": -85 / 63}


@dataclass(frozen=True)
class PublishedPlan:
    """Algorithm 1: of `policies` (C_max) drawn at random keep the `keep` (n) with the lowest S_pri of those that reach T_acc.

    S_acc is computed on all batches of the scorer, and S_pri on all of its images at all of its points. `threshold` is T_acc; by
    default that of the published code, in the units of the scorer's definition. While fewer than `keep` have qualified, sampling
    goes on. `hybrid` is how many of the best are joined: three by the replication's text, two in both papers' tables. Policies
    that do the same are drawn once, where the published code may draw them again.

        scorer = Scorer(semi, fresh, test, images=100, batches=10, batch_size=100, definition="code", points=None)
        search(scorer, plan=PublishedPlan())
    """

    policies: int = 1500
    keep: int = 10
    threshold: float | None = None
    hybrid: int = 3
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not 1 <= self.keep <= self.policies:
            raise GradveilError(f"the search must keep 1 to {self.policies} policies (its budget), got {self.keep}")
        check_confidence(self.confidence)
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise GradveilError(f"the threshold must be a finite accuracy score, such as -85, got {self.threshold}")
        if self.hybrid < 1:
            raise GradveilError(f"a hybrid has at least 1 policy, got {self.hybrid}")

    def threshold_for(self, definition: str) -> float:
        """T_acc for scores by this definition."""
        return lookup(THRESHOLDS, definition, "definition") if self.threshold is None else self.threshold

    def expected_gradients(self, scorer: Scorer) -> int:
        """About what it takes: every policy in full."""
        return self.policies * scorer.gradients


def run_published(board: Board, plan: PublishedPlan, workers: Workers, say: Callable[[str], None]) -> SearchResult:
    """Algorithm 1 over what the board knows. Beside its result stand the policies that are statistically tied with it."""
    scorer = board.scorer
    sampler = RandomSampler(scorer.seed, scorer.held_out.image_shape[0])
    qualified: list[Policy] = []
    wanted = plan.policies
    while wanted > 0 and len(board.goals) < MOST_DRAWS * plan.policies and (drawn := sampler.propose(wanted)):
        goals = dict.fromkeys(drawn, Goal(full=scorer.images, accuracy=True, all_batches=True))
        board.goals.update(goals)
        workers.reach(f"{len(drawn)} policies in full", goals)
        qualified += board.eligible(drawn)
        say(f"{len(qualified)} of {len(board.goals)} policies reach S_acc {board.filter.threshold:.4g}")
        wanted = plan.keep - len(qualified)
    if not qualified:
        raise GradveilError(
            f"none of {len(board.goals)} policies reaches an accuracy score of {board.filter.threshold:g}: lower it"
        )
    means = {policy: statistics.fmean(board.requested_entry(policy).full) for policy in qualified}
    ranked = sorted(qualified, key=lambda policy: (means[policy], str(policy)))
    best = ranked[: plan.keep]
    belief = believe({str(policy): board.requested_entry(policy).full for policy in ranked}, None)
    reach = float(ndtri(plan.confidence))
    tied = [policy for policy in ranked[plan.keep :] if belief.distance(str(policy), str(best[-1])) <= reach]
    others = frozenset(map(str, ranked[plan.keep :]))
    rounds = [RaceRound(scorer.images, {str(policy): mean for policy, mean in means.items()}, others)]
    hybrid = disjoint_hybrid(best, plan.hybrid)
    result = conclude(board, {"full": belief}, best, tied, hybrid, rounds, plan.confidence)
    close_trials(board, result)
    return Controls(board, 0, plan.confidence).compare(workers, result)
