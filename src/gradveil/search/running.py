"""The search: an accuracy filter, a race on growing numbers of images, and a last measurement of the winners on fresh ones."""

import secrets
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from optuna.trial import TrialState

from gradveil.errors import GradveilError
from gradveil.names import lookup
from gradveil.parallel import one_thread, run_jobs
from gradveil.progress import Progress, silent
from gradveil.scores import Estimate, NotFinite, Scorer
from gradveil.search.accuracy_filter import AccuracyFilter
from gradveil.search.ledger import Entry, Ledger, fingerprint
from gradveil.search.race import RaceRound, alike, front, interval, still_racing
from gradveil.search.result import Candidate, SearchResult, Seen, disjoint_hybrid
from gradveil.search.sampling import SAMPLERS, sampler_named
from gradveil.search.scoring import Goal, Job, brought_to
from gradveil.transforms import Policy

Say = Callable[[str], None]

GRADIENTS_PER_POLICY = 90
# Sampling goes on while too few policies pass the filter, but not for ever.
MOST_DRAWS = 10


@dataclass(frozen=True)
class Plan:
    """How far a search goes.

    It looks at `policies` from the sampler and keeps `keep`. Policies that pass the accuracy filter see `first_look` images, then
    twice as many each round; those that are worse than the last of the best, with `confidence`, drop out. It ends when nobody
    else is left, or the images or `gradients` are spent (default: 90 per policy and what the last measurement takes; the
    published procedure takes over 2,000 per policy). The winners are measured again on `fresh` images that the race has not
    seen. First look and last measurement are never cut short.
    """

    policies: int = 1500
    keep: int = 10
    sampler: str = "random"
    redundancy: float = 2.0
    confidence: float = 0.95
    first_look: int = 4
    fresh: int = 100
    gradients: int | None = None

    def __post_init__(self) -> None:
        lookup(SAMPLERS, self.sampler, "sampler")
        if not 1 <= self.keep <= self.policies:
            raise GradveilError(f"the search must keep 1 to {self.policies} policies (its budget), got {self.keep}")
        if not 0.5 <= self.confidence < 1:
            raise GradveilError(f"confidence must be at least 0.5 and less than 1, got {self.confidence}")
        if not self.redundancy > 0:
            raise GradveilError(f"the allowed redundancy must be more than 0, got {self.redundancy}")
        if self.first_look < 1 or self.fresh < 0 or (self.gradients is not None and self.gradients < 1):
            raise GradveilError("a search needs a first look of at least one image, and a positive number of gradients")


def search(
    scorer: Scorer,
    storage: Path | str | None,
    plan: Plan | None = None,
    *,
    workers: int = 1,
    backend: str = "loky",
    progress: Progress = silent,
    say: Say = lambda text: None,
) -> SearchResult:
    """Find the most private policies; see `Plan` for how.

    Everything computed goes into the Optuna study in `storage` (a file for SQLite, any storage URL, or None to keep nothing) at
    once; started again, also with a larger plan, the search goes on from there. The result depends on the scorer and the plan
    alone, not on workers, interruptions, or what else the study holds.
    """
    plan = plan or Plan()
    objectives = ("minimize", "maximize") if plan.sampler == "nsga2" else ("minimize",)
    ledger = Ledger(storage, fingerprint(scorer), objectives=objectives)
    with one_thread():  # as the workers: the last digits must not depend on the number of threads
        with suppress(NotFinite):  # finds out how the model is best looked at
            scorer.privacy(Policy.parse("identity"), range(1), quick=True)
        accuracy_filter = AccuracyFilter.of(scorer, plan.redundancy)
    work = partial(run_jobs, workers=workers, backend=backend)
    return _Search(scorer, plan, ledger, accuracy_filter, work, progress, say).run()


@dataclass
class _Search:
    scorer: Scorer
    plan: Plan
    ledger: Ledger
    filter: AccuracyFilter
    work: Callable[[Callable[[Job], Job], Iterable[Job]], Iterator[Job]]
    progress: Progress
    say: Say

    def __post_init__(self) -> None:
        # Half of few images choose, the other half measures; a single one must do both.
        self.fresh = min(self.plan.fresh, self.scorer.images // 2)
        self.racing = self.scorer.images - self.fresh
        self.goals: dict[Policy, Goal] = {}  # how far each drawn policy has come
        self.rounds: list[RaceRound] = []

    def run(self) -> SearchResult:
        contenders = self.race(self.explore())
        best = contenders[: self.plan.keep]
        self.bring("measuring the best anew", best, Goal(self.goals[best[0]].quick, self.fresh, all_batches=True))
        best = self.sound(best)
        if not best:
            raise GradveilError("none of the best policies has a finite score on the fresh images")
        result = self.result(best, contenders)
        self.close(result)
        return result

    def explore(self) -> list[Policy]:
        """The accuracy filter and a first look for every policy that is drawn; gives those that pass."""
        sampler = sampler_named(self.plan.sampler, self.scorer.seed, self.scorer.held_out.image_shape[0])
        look = Goal(min(self.plan.first_look, self.racing))
        qualified: list[Policy] = []
        while count := self.still_to_draw(len(qualified)):
            drawn = sampler.propose(count)
            if not drawn:
                break
            self.bring(f"a first look at {len(drawn)} policies", drawn, look)
            passed = self.sound(drawn)
            qualified += passed
            sampler.hear({p: (self.privacy(p).mean, self.accuracy(p).mean) for p in passed})
        if not qualified:
            reasons = [why for policy in self.goals if (why := self.ledger[policy].failed)]
            reasons.append(f"a larger redundancy than {self.plan.redundancy} would do")
            raise GradveilError(f"none of {len(self.goals)} policies qualifies: {reasons[0]}")
        return qualified

    def still_to_draw(self, qualified: int) -> int:
        drawn, asked = len(self.goals), self.plan.policies
        if drawn < asked:
            return asked - drawn
        return self.plan.keep - qualified if qualified < self.plan.keep and drawn < MOST_DRAWS * asked else 0

    def race(self, contenders: list[Policy]) -> list[Policy]:
        """Rounds of twice as many images until the places are taken, or gradients or images run out; best first."""
        while True:
            contenders, images = self.drop(contenders), self.goals[contenders[0]].quick
            best = contenders[0]
            self.say(
                f"{images} images: {len(contenders)} contenders for {self.plan.keep} places, "
                f"best {best} with {self.privacy(best)}"
            )
            more = min(images, self.racing - images, self.affordable(len(contenders)))
            if len(contenders) <= self.plan.keep or more < 1:
                return contenders
            self.bring(f"{len(contenders)} contenders for {self.plan.keep} places", contenders, Goal(images + more))
            contenders = self.sound(contenders)
            if not contenders:
                raise GradveilError("no contender has a finite score on all images")

    def drop(self, contenders: list[Policy]) -> list[Policy]:
        values = {str(policy): self.used(policy).quick for policy in contenders}
        left = still_racing(values, self.plan.keep, self.plan.confidence)
        by_name = {str(policy): policy for policy in contenders}
        means = {name: statistics.fmean(numbers) for name, numbers in values.items()}
        self.rounds.append(RaceRound(len(values[left[0]]), means, frozenset(values) - frozenset(left)))
        for name in sorted(self.rounds[-1].dropped):
            self.ledger.close(by_name[name], self.told(by_name[name]), TrialState.PRUNED)
        return [by_name[name] for name in left]

    def affordable(self, contenders: int) -> int:
        """Images that each contender can still see, when what the last measurement takes is set aside."""
        score = self.scorer.privacy_score
        last = self.plan.keep * (self.fresh * score.evaluations + sum(self.filter.rows))
        most = self.plan.gradients or GRADIENTS_PER_POLICY * self.plan.policies + last
        return (most - self.spent() - last) // (contenders * (score.quick or score).evaluations)

    def bring(self, title: str, policies: Sequence[Policy], goal: Goal) -> None:
        """Compute what `policies` lack to `goal`, and keep it."""
        self.goals |= dict.fromkeys(policies, goal)
        lacking = [policy for policy in policies if not goal.reached(self.ledger[policy], self.filter)]
        if self.ledger.shared and lacking:  # machines that share a study begin at different places
            start = secrets.randbelow(len(lacking))
            lacking = lacking[start:] + lacking[:start]
        with self.progress(title, len(policies), "policies") as advance:
            advance(len(policies) - len(lacking))
            jobs = (
                (policy, entry)
                for policy in lacking
                if not goal.reached(entry := self.ledger.latest(policy), self.filter)
            )
            for policy, entry in self.work(partial(brought_to, goal, self.scorer, self.filter), jobs):
                self.ledger.write(policy, entry)
                advance(1)

    def sound(self, policies: Sequence[Policy]) -> list[Policy]:
        """Those that passed the filter and have finite scores."""
        entries = [(policy, self.ledger[policy]) for policy in policies]
        return [policy for policy, entry in entries if not entry.failed and self.filter.passes(entry)]

    def used(self, policy: Policy) -> Entry:
        """What this plan asked of the policy; the study may hold more."""
        return self.goals[policy].part_of(self.ledger[policy], self.filter)

    def privacy(self, policy: Policy) -> Estimate:
        """As the race sees it."""
        return Estimate(self.used(policy).quick, self.gradients(policy))

    def accuracy(self, policy: Policy) -> Estimate:
        used = self.used(policy)
        return Estimate(used.accuracy, sum(used.rows))

    def gradients(self, policy: Policy) -> int:
        """Those that S_pri took."""
        used, score = self.used(policy), self.scorer.privacy_score
        return len(used.quick) * (score.quick or score).evaluations + len(used.full) * score.evaluations

    def spent(self) -> int:
        return sum(self.filter.rows) + sum(self.gradients(p) + sum(self.used(p).rows) for p in self.goals)

    def told(self, policy: Policy) -> tuple[float, ...]:
        """What the study says of the policy, one figure per objective."""
        return (self.mean(policy), self.accuracy(policy).mean)[: self.ledger.objectives]

    def mean(self, policy: Policy) -> float:
        """The best that is known of its S_pri."""
        used = self.used(policy)
        return statistics.fmean(used.full or used.quick)

    def result(self, best: list[Policy], contenders: list[Policy]) -> SearchResult:
        confidence = self.plan.confidence
        measured = {p: self.used(p).full or self.used(p).quick for p in best}
        best = sorted(best, key=lambda policy: (self.mean(policy), str(policy)))
        same = alike({str(policy): measured[policy] for policy in best}, confidence)
        sound = set(self.sound(list(self.goals)))
        seen = tuple(
            Seen(p, self.accuracy(p).mean, self.mean(p) if p in sound else None, len(self.used(p).quick))
            for p in self.goals
            if not self.ledger[p].failed
        )
        points = {one.policy: (one.privacy, one.accuracy) for one in seen if one.privacy is not None}
        return SearchResult(
            best=tuple(
                Candidate(
                    policy=policy,
                    accuracy=self.accuracy(policy),
                    privacy=Estimate(measured[policy], self.gradients(policy)),
                    interval=interval(measured[policy], confidence),
                    alike=tuple(Policy.parse(name) for name in same[str(policy)]),
                    fresh=bool(self.used(policy).full),
                )
                for policy in best
            ),
            hybrid=disjoint_hybrid(best),
            settled=len(contenders) <= self.plan.keep,
            contenders=tuple(contenders[self.plan.keep :]),
            front=tuple(front(points)),
            seen=seen,
            failed=tuple((p, why) for p in self.goals if (why := self.ledger[p].failed)),
            rounds=tuple(self.rounds),
            evaluations=self.spent(),
            confidence=confidence,
            accuracy_threshold=self.filter.threshold,
        )

    def close(self, result: SearchResult) -> None:
        """End the trials, for whoever reads the study with Optuna's own tools."""
        for policy in self.goals:
            if self.ledger[policy].failed:
                self.ledger.close(policy, None, TrialState.FAIL)
            elif not self.used(policy).quick:
                self.ledger.close(policy, None, TrialState.PRUNED)
        for policy in (*(candidate.policy for candidate in result.best), *result.contenders):
            self.ledger.close(policy, self.told(policy), TrialState.COMPLETE)
