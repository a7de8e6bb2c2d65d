"""What a search found, and how sure it is of it."""

from dataclasses import dataclass
from pathlib import Path

from gradveil.scores import Estimate
from gradveil.searching.race import RaceRound
from gradveil.transforms import Policy, PolicyFile, Provenance, save_policy


@dataclass(frozen=True)
class Candidate:
    """A policy with its scores, and the policies it is statistically tied with (`alike`).

    The privacy of a kept policy was measured anew, on images that had no say in keeping it: the luck that helped it win does
    not flatter it. `fresh` is False where there were not enough images for that. `interval` is a confidence interval.
    """

    policy: Policy
    accuracy: Estimate
    privacy: Estimate
    interval: tuple[float, float] | None
    alike: tuple[Policy, ...]
    fresh: bool

    def summary(self) -> dict[str, object]:
        """The figures as plain data, for JSON."""
        return {
            "policy": str(self.policy),
            "privacy": self.privacy.summary(),
            "interval": None if self.interval is None else list(self.interval),
            "fresh_images": self.fresh,
            "accuracy": self.accuracy.summary(),
            "not_told_apart_from": [str(policy) for policy in self.alike],
        }


@dataclass(frozen=True)
class PolicyOutcome:
    """A policy as the race left it, after so many images.

    No privacy if it failed the accuracy filter; no accuracy if it lost without being asked for it.
    """

    policy: Policy
    accuracy: float | None
    privacy: float | None
    interval: tuple[float, float] | None
    images: int


@dataclass(frozen=True)
class SearchResult:
    """The best policies, most private first, the hybrid of the best disjoint ones, and what it took to find them.

    `settled` says that nobody else could still belong to the best, at the asked confidence; `contenders` are those who could:
    the budget did not reach for telling. `front` is the Pareto front as the race saw the policies.
    """

    best: tuple[Candidate, ...]
    hybrid: Policy
    settled: bool
    contenders: tuple[Policy, ...]
    front: tuple[Policy, ...]
    seen: tuple[PolicyOutcome, ...]
    failed: tuple[tuple[Policy, str], ...]
    rounds: tuple[RaceRound, ...]
    evaluations: int
    confidence: float
    accuracy_threshold: float

    @property
    def discarded(self) -> int:
        """How many policies are known to fail the accuracy filter."""
        return sum(one.privacy is None for one in self.seen)

    @property
    def scored(self) -> int:
        """How many others there are."""
        return len(self.seen) - self.discarded

    def summary(self) -> dict[str, object]:
        """The result as plain data, for JSON."""
        return {
            "policies": [candidate.summary() for candidate in self.best],
            "hybrid": str(self.hybrid),
            "settled": self.settled,
            "contenders": [str(policy) for policy in self.contenders],
            "pareto_front": [str(policy) for policy in self.front],
            "scored": self.scored,
            "discarded": self.discarded,
            "failed": {str(policy): why for policy, why in self.failed},
            "evaluations": self.evaluations,
            "confidence": self.confidence,
            "accuracy_threshold": self.accuracy_threshold,
        }

    def save_policies(self, folder: Path, provenance: Provenance) -> list[Path]:
        """Write a policy file for each of the best, numbered by rank, and one for the hybrid."""
        for old in folder.glob("[0-9][0-9]-*.json"):  # of an earlier search
            old.unlink()
        files = []
        for rank, candidate in enumerate(self.best, 1):
            privacy = candidate.privacy
            scores = {"s_acc": candidate.accuracy.mean, "s_pri": privacy.mean, "s_pri_n": privacy.n}
            scores |= {} if privacy.se is None else {"s_pri_se": privacy.se}
            files.append(folder / f"{rank:02}-{candidate.policy}.json")
            save_policy(files[-1], PolicyFile(candidate.policy, scores, provenance))
        files.append(folder / "hybrid.json")
        save_policy(files[-1], PolicyFile(self.hybrid, {}, provenance))
        return files


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
