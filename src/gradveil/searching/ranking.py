"""Given policies, each scored in full: for charts and tables, where a race would leave gaps."""

import secrets
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from optuna.trial import TrialState

from gradveil.parallel import LOCAL, check_backend, run_jobs
from gradveil.progress import Progress, silent
from gradveil.scores import Estimate, Scorer, Scores
from gradveil.searching.accuracy_filter import AccuracyFilter
from gradveil.searching.ledger import Ledger, fingerprint
from gradveil.searching.scoring import Goal, reach_goal
from gradveil.transforms import LIBRARY, Policy


def single_operations(channels: int) -> list[Policy]:
    """Every published operation that does something of its own on images of so many channels, the first of its kind."""
    seen: set[Policy] = set()
    chosen = []
    for operation in LIBRARY:
        policy = Policy(((operation,),))
        same = policy.canonical(channels)
        if any(same.members) and same not in seen:
            seen.add(same)
            chosen.append(policy)
    return chosen


def rank(
    scorer: Scorer,
    storage: Path | str,
    policies: Sequence[Policy],
    *,
    workers: int = 1,
    backend: str = LOCAL,
    progress: Progress = silent,
) -> dict[Policy, Scores]:
    """Both scores of every policy that has finite ones, most private first; killed and started again, it goes on."""
    check_backend(backend)
    ledger = Ledger(storage, fingerprint(scorer))
    with scorer.device.computing("--batches"):
        everybody = AccuracyFilter.of(scorer, sys.float_info.max)
    goal = Goal(full=scorer.images, accuracy=True, all_batches=True)
    lacking = [policy for policy in policies if not goal.is_reached(ledger[policy], everybody)]
    if ledger.shared and lacking:  # machines that share a study begin at different places
        start = secrets.randbelow(len(lacking))
        lacking = lacking[start:] + lacking[:start]
    jobs = (
        (policy, goal, entry) for policy in lacking if not goal.is_reached(entry := ledger.latest(policy), everybody)
    )
    with progress("scoring policies", len(policies), "policies") as advance:
        advance(len(policies) - len(lacking))
        for policy, entry in run_jobs(
            partial(reach_goal, scorer, everybody),
            jobs,
            workers=workers,
            backend=backend,
            describe=lambda job: f"policy {job[0]}",
        ):
            ledger.write(policy, entry)
            advance(1)
    cost = scorer.privacy_score.evaluations
    found = {
        policy: Scores(Estimate(entry.full, len(entry.full) * cost), Estimate(entry.accuracy, sum(entry.rows)))
        for policy in policies
        if not (entry := ledger[policy]).failed
    }
    for policy, scores in found.items():
        ledger.close(policy, (scores.privacy.mean,), TrialState.COMPLETE)
    return dict(sorted(found.items(), key=lambda item: item[1].privacy.mean))
