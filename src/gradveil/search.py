"""Search for policies that score well on privacy without scoring badly on accuracy (Gao et al., 2021, Algorithm 1)."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import optuna
from optuna.trial import TrialState, create_trial

from gradveil.errors import GradveilError
from gradveil.parallel import one_thread, run_jobs
from gradveil.progress import Progress, silent
from gradveil.randomness import derive_seed
from gradveil.scores import Estimate, Scorer
from gradveil.store import content_hash
from gradveil.transforms import LIBRARY, Policy, PolicyFile, Provenance, save_policy, space_size

LONGEST = 3
STUDY = "gradveil-search"


@dataclass(frozen=True)
class Candidate:
    """A policy with its scores; one that failed the accuracy filter was never scored for privacy."""

    policy: Policy
    accuracy: Estimate
    privacy: Estimate | None

    def summary(self) -> dict[str, object]:
        """The figures as plain data, for JSON."""
        return {
            "policy": str(self.policy),
            "privacy": None if self.privacy is None else self.privacy.summary(),
            "accuracy": self.accuracy.summary(),
        }


@dataclass(frozen=True)
class SearchResult:
    """The best policies, most private first, the hybrid of the best disjoint ones, and what it took to find them."""

    best: tuple[Candidate, ...]
    hybrid: Policy
    scored: int
    discarded: int
    evaluations: int
    accuracy_threshold: float

    def summary(self) -> dict[str, object]:
        """The result as plain data, for JSON."""
        return {
            "policies": [candidate.summary() for candidate in self.best],
            "hybrid": str(self.hybrid),
            "scored": self.scored,
            "discarded": self.discarded,
            "evaluations": self.evaluations,
            "accuracy_threshold": self.accuracy_threshold,
        }

    def save_policies(self, folder: Path, provenance: Provenance) -> list[Path]:
        """Write a policy file for each of the best, numbered by rank, and one for the hybrid."""
        files = []
        for rank, candidate in enumerate(self.best, 1):
            scores = {"s_acc": candidate.accuracy.mean}
            if candidate.privacy is not None:
                scores |= {"s_pri": candidate.privacy.mean, "s_pri_n": candidate.privacy.n}
                scores |= {} if candidate.privacy.se is None else {"s_pri_se": candidate.privacy.se}
            files.append(folder / f"{rank:02}-{candidate.policy}.json")
            save_policy(files[-1], PolicyFile(candidate.policy, scores, provenance))
        files.append(folder / "hybrid.json")
        save_policy(files[-1], PolicyFile(self.hybrid, {}, provenance))
        return files


def search(
    scorer: Scorer,
    storage: Path,
    *,
    budget: int = 1500,
    keep: int = 10,
    tolerance: float = 0.05,
    workers: int = 1,
    progress: Progress = silent,
) -> SearchResult:
    """Score `budget` random policies and keep the `keep` most private of those that pass the accuracy filter.

    A policy passes when its S_acc is at most `tolerance` (as a share) below the score of untransformed images. Every scored
    policy goes into the Optuna study in the SQLite file `storage` at once; started again, the search goes on from there.
    """
    if not 1 <= keep <= budget:
        raise GradveilError(f"the search must keep 1 to {budget} policies (its budget), got {keep}")
    with one_thread():  # as the workers: the threshold must not depend on the number of threads
        unchanged = scorer.accuracy(Policy.parse("identity"))
    threshold = unchanged.mean - tolerance * abs(unchanged.mean)
    study = _open_study(storage, _fingerprint(scorer, tolerance))
    drawn = random_policies(scorer.seed, budget, channels=scorer.held_out.image_shape[0])
    done = {trial.user_attrs["policy"] for trial in study.trials}
    with progress("scoring policies", len(drawn), "policies") as advance:
        advance(sum(str(policy) in done for policy in drawn))
        pending = [policy for policy in drawn if str(policy) not in done]
        for candidate in run_jobs(partial(_score, scorer, threshold), pending, workers=workers):
            study.add_trial(_trial(candidate))
            advance(1)
    asked = {str(policy) for policy in drawn}
    candidates = [_candidate(trial) for trial in study.trials if trial.user_attrs["policy"] in asked]
    qualified = [candidate for candidate in candidates if candidate.privacy is not None]
    if not qualified:
        raise GradveilError(
            f"none of {len(drawn)} policies reaches the accuracy score {threshold:.3f}; "
            f"a larger tolerance than {tolerance} would do"
        )
    best = tuple(sorted(qualified, key=_rank)[:keep])
    spent = [score.evaluations for c in candidates for score in (c.accuracy, c.privacy) if score is not None]
    return SearchResult(
        best=best,
        hybrid=disjoint_hybrid([candidate.policy for candidate in best]),
        scored=len(qualified),
        discarded=len(candidates) - len(qualified),
        evaluations=sum(spent) + unchanged.evaluations,
        accuracy_threshold=threshold,
    )


def random_policies(seed: int, count: int, *, channels: int) -> list[Policy]:
    """`count` policies drawn uniformly from all of one to three published operations, no two doing the same.

    There are only so many that differ (see `space_size`); asked for more, it gives them all.
    """
    count = min(count, space_size(channels, LONGEST).policies - 1)  # one of them is the identity
    seen: set[Policy] = set()
    drawn: list[Policy] = []
    for policy in _draws(seed):
        same = policy.canonical(channels)
        if same not in seen and any(same.members):
            seen.add(same)
            drawn.append(policy)
            if len(drawn) == count:
                break
    return drawn


def _draws(seed: int) -> Iterator[Policy]:
    sizes = [len(LIBRARY) ** length for length in range(1, LONGEST + 1)]
    for number in itertools.count():
        rest = derive_seed(seed, "policy", number) % sum(sizes)
        length = 1
        while rest >= sizes[length - 1]:
            rest -= sizes[length - 1]
            length += 1
        digits = []
        for _ in range(length):
            rest, digit = divmod(rest, len(LIBRARY))
            digits.append(LIBRARY[digit])
        yield Policy((tuple(digits),))


def disjoint_hybrid(ranked: list[Policy], members: int = 2) -> Policy:
    """Join the best policies that share no transformation function with a better member."""
    chosen: list[Policy] = []
    used: set[str] = set()
    for policy in ranked:
        functions = {str(op) for member in policy.canonical(3) for op in member}
        if not functions & used:
            chosen.append(policy)
            used |= functions
            if len(chosen) == members:
                break
    return Policy(tuple(member for policy in chosen for member in policy.members))


def _score(scorer: Scorer, threshold: float, policy: Policy) -> Candidate:
    accuracy = scorer.accuracy(policy)
    return Candidate(policy, accuracy, scorer.privacy(policy) if accuracy.mean >= threshold else None)


def _rank(candidate: Candidate) -> tuple[float, str]:
    assert candidate.privacy is not None
    return candidate.privacy.mean, str(candidate.policy)


def _trial(candidate: Candidate) -> optuna.trial.FrozenTrial:
    scores = {"accuracy": candidate.accuracy, "privacy": candidate.privacy}
    return create_trial(
        state=TrialState.PRUNED if candidate.privacy is None else TrialState.COMPLETE,
        value=None if candidate.privacy is None else candidate.privacy.mean,
        user_attrs={"policy": str(candidate.policy)}
        | {name: [score.evaluations, *score.values] for name, score in scores.items() if score is not None},
    )


def _candidate(trial: optuna.trial.FrozenTrial) -> Candidate:
    def estimate(name: str) -> Estimate:
        evaluations, *values = trial.user_attrs[name]
        return Estimate(tuple(values), int(evaluations))

    scored = trial.state == TrialState.COMPLETE
    return Candidate(
        Policy.parse(trial.user_attrs["policy"]), estimate("accuracy"), estimate("privacy") if scored else None
    )


def _open_study(storage: Path, fingerprint: str) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage.parent.mkdir(parents=True, exist_ok=True)
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{storage}", study_name=STUDY, direction="minimize", load_if_exists=True
        )
    except Exception as error:  # whatever SQLAlchemy makes of a file that is no database
        raise GradveilError(
            f"{storage}: not a readable study ({type(error).__name__}); remove it or choose another --out"
        ) from error
    found = study.user_attrs.get("fingerprint", fingerprint)
    if found != fingerprint:
        raise GradveilError(f"{storage} holds a search with other settings; remove it or choose another --out")
    study.set_user_attr("fingerprint", fingerprint)
    return study


def _fingerprint(scorer: Scorer, tolerance: float) -> str:
    """Changes whenever a score could."""
    settings = [scorer.images, scorer.batches, scorer.batch_size, scorer.definition, scorer.seed, tolerance]
    weights = [*scorer.trained.state_dict().values(), *scorer.untrained.state_dict().values()]
    digest = hashlib.sha256(json.dumps(settings).encode())
    digest.update(content_hash([*weights, scorer.held_out.images, scorer.held_out.labels]))
    return digest.hexdigest()
