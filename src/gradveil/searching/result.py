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
class Control:
    """What winners have to beat: `identity` is to do nothing, `random` a hybrid of policies that nobody searched for.

    It is measured on the images that the winners are measured on. `beaten_by` are those of them that are clearly more private, by
    paired tests that share the chance of an error. `gap` is the confidence interval of the first winner's score minus this one's,
    below 0 where it is more private.
    """

    name: str
    policy: Policy
    privacy: Estimate
    interval: tuple[float, float] | None
    accuracy: Estimate
    beaten_by: tuple[Policy, ...]
    gap: tuple[float, float] | None

    def summary(self) -> dict[str, object]:
        """The figures as plain data, for JSON."""
        return {
            "name": self.name,
            "policy": str(self.policy),
            "privacy": self.privacy.summary(),
            "interval": None if self.interval is None else list(self.interval),
            "accuracy": self.accuracy.summary(),
            "beaten_by": [str(policy) for policy in self.beaten_by],
            "gap": None if self.gap is None else list(self.gap),
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
    the budget did not reach for telling. `front` is the Pareto front as the race saw the policies. `controls` are what the best
    have to beat; `verdict` says so where they do not.
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
    controls: tuple[Control, ...] = ()

    @property
    def verdict(self) -> str | None:
        """What has to be said before anything else: that the winner is not clearly more private than a control. None if it is."""
        winner = self.best[0]
        equal = [one for one in self.controls if winner.policy not in one.beaten_by]
        if not equal:
            return None
        said = {"identity": "nothing", "random": "random policies"}
        scores = ", ".join(f"{one.name} {one.privacy.mean:.4f}" for one in equal)
        return (
            f"no better than {' or '.join(said.get(one.name, one.name) for one in equal)}, as far as {winner.privacy.n} images "
            f"show: the winner {winner.policy} scores {winner.privacy.mean:.4f}, {scores} (lower is more private)"
        )

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
            "verdict": self.verdict or "the winner is clearly more private than identity and random policies",
            "policies": [candidate.summary() for candidate in self.best],
            "controls": [control.summary() for control in self.controls],
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
        files = []
        for rank, candidate in enumerate(self.best, 1):
            privacy = candidate.privacy
            scores = {"s_acc": candidate.accuracy.mean, "s_pri": privacy.mean, "s_pri_n": privacy.n}
            scores |= {} if privacy.se is None else {"s_pri_se": privacy.se}
            files.append(folder / f"{rank:02}-{candidate.policy}.json")
            save_policy(files[-1], PolicyFile(candidate.policy, scores, provenance))
        files.append(folder / "hybrid.json")
        save_policy(files[-1], PolicyFile(self.hybrid, {}, provenance))
        for old in folder.glob("[0-9][0-9]*-*.json"):
            if old not in files and old.name.partition("-")[0].isdecimal():  # of an earlier search
                old.unlink(missing_ok=True)  # another machine may end the same search
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
