"""From a finished race to its result: the winners by their last measurement, and what is believed of everybody else."""

import statistics
from collections.abc import Mapping, Sequence

from optuna.trial import TrialState
from scipy.special import ndtri

from gradveil.scores import Estimate
from gradveil.searching.belief import Belief, surest
from gradveil.searching.board import Board
from gradveil.searching.race import RaceRound, pareto_front, tied_with
from gradveil.searching.result import Candidate, PolicyOutcome, SearchResult
from gradveil.statistics import mean_interval
from gradveil.transforms import Policy


def conclude(
    board: Board,
    beliefs: Mapping[str, Belief],
    best: Sequence[Policy],
    others: Sequence[Policy],
    hybrid: Policy,
    rounds: Sequence[RaceRound],
    confidence: float,
) -> SearchResult:
    """The result where `best` were kept and `others` could still belong to them."""
    measured = {policy: board.requested_entry(policy).fresh or board.race_estimate(policy).values for policy in best}
    best = sorted(best, key=lambda policy: (statistics.fmean(measured[policy]), str(policy)))
    same = tied_with({str(policy): measured[policy] for policy in best}, confidence)
    outside = [policy for policy in board.eligible(list(board.goals)) if policy not in best]
    two_sided = float(ndtri((1 + confidence) / 2))

    def candidate(policy: Policy) -> Candidate:
        inside = [other for other in best if str(other) in same[str(policy)]]
        tied = [
            other for other in outside if surest(beliefs, policy, other).distance(str(policy), str(other)) <= two_sided
        ]
        return Candidate(
            policy=policy,
            accuracy=board.accuracy(policy),
            privacy=Estimate(measured[policy], board.gradients(policy)),
            interval=mean_interval(measured[policy], confidence),
            alike=(*inside, *tied),
            fresh=bool(board.requested_entry(policy).fresh),
        )

    seen = tuple(
        outcome(board, beliefs, policy, confidence) for policy in board.goals if not board.ledger[policy].failed
    )
    scores = {
        one.policy: (one.privacy, one.accuracy) for one in seen if one.privacy is not None and one.accuracy is not None
    }
    return SearchResult(
        best=tuple(map(candidate, best)),
        hybrid=hybrid,
        settled=not others,
        contenders=tuple(others),
        front=pareto_front(scores),
        seen=seen,
        failed=tuple((policy, why) for policy in board.goals if (why := board.ledger[policy].failed)),
        rounds=tuple(rounds),
        evaluations=board.gradients_spent(),
        confidence=confidence,
        accuracy_threshold=board.filter.threshold,
    )


def close_trials(board: Board, result: SearchResult) -> None:
    """End the trials, for whoever reads the study with Optuna's own tools; the best are the complete ones."""
    for candidate in result.best:
        board.ledger.close(candidate.policy, board.trial_values(candidate.policy), TrialState.COMPLETE)
    for policy in board.goals:
        if board.ledger[policy].failed:
            board.ledger.close(policy, None, TrialState.FAIL)
        else:
            values = board.trial_values(policy) if policy in result.contenders else None
            board.ledger.close(policy, values, TrialState.PRUNED)


def outcome(board: Board, beliefs: Mapping[str, Belief], policy: Policy, confidence: float) -> PolicyOutcome:
    """The policy as the result lists it."""
    entry = board.requested_entry(policy)
    accuracy = statistics.fmean(entry.accuracy) if entry.accuracy else None
    if board.filter.rejects(entry):
        return PolicyOutcome(policy, accuracy, None, None, 0)
    belief, images = surest(beliefs, policy), len(entry.full or entry.quick)
    return PolicyOutcome(policy, accuracy, belief.mean(str(policy)), belief.interval(str(policy), confidence), images)
