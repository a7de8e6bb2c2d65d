"""The search: an accuracy filter, a race on growing numbers of images, and a last measurement of the winners on fresh ones."""

import math
import secrets
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from optuna.trial import TrialState

from gradveil.errors import GradveilError
from gradveil.parallel import LOCAL, RunJobs, check_backend, starting_workers, using_one_thread
from gradveil.progress import Progress, silent
from gradveil.scores import Estimate, NotFinite, Scorer
from gradveil.searching.accuracy_filter import AccuracyFilter
from gradveil.searching.board import Board
from gradveil.searching.ledger import Ledger, fingerprint
from gradveil.searching.plan import GRADIENTS_PER_POLICY, SearchPlan
from gradveil.searching.race import RaceRound, differ, pareto_front, survivors, tied_with
from gradveil.searching.result import Candidate, SearchResult, disjoint_hybrid
from gradveil.searching.scoring import Goal, reach_goal
from gradveil.statistics import mean_interval
from gradveil.transforms import Policy

Say = Callable[[str], None]

# Sampling goes on while too few policies pass the filter, but not for ever.
MOST_DRAWS = 10
# Quick looks are biased by a little that differs between policies; who is still there after so many images is scored in full.
QUICK_IMAGES = 16
# A round may take this fraction of the gradients left; if that does not reach for all, the best go on.
ROUND_FRACTION = 1 / 3


def search(
    scorer: Scorer,
    storage: Path | str | None = None,
    plan: SearchPlan | None = None,
    *,
    workers: int = 1,
    backend: str = LOCAL,
    progress: Progress = silent,
    say: Say = lambda text: None,
) -> SearchResult:
    """Find the most private policies; see `SearchPlan` for how.

    `scorer` scores policies, with a model and a score of your own if you like. `storage` is a file for an Optuna study in
    SQLite, any storage URL, or None to keep nothing. Everything computed goes there at once. Started again, also with a larger
    plan, the search goes on from there. `backend` is "loky" for processes here, or a "ray" or "dask" cluster. The result
    depends on the scorer and the plan alone, not on workers, interruptions, or what else the study holds.

        found = search(Scorer(model, fresh, test_images), Path("study.sqlite3"), SearchPlan(policies=300), workers=2)
        found.best[0].policy, found.best[0].interval
    """
    plan = plan or SearchPlan()
    check_backend(backend)
    objectives = ("minimize", "maximize") if plan.sampler == "nsga2" else ("minimize",)
    ledger = Ledger(storage, fingerprint(scorer), objectives=objectives)
    # As the workers: the last digits must not depend on the number of threads.
    with using_one_thread(), scorer.device.computing("--batches"):
        with suppress(NotFinite):  # finds out how the model is best looked at
            scorer.privacy(Policy.parse("identity"), range(1), quick=True)
        accuracy_filter = AccuracyFilter.of(scorer, plan.redundancy)
    with starting_workers(workers, backend) as work:
        return _Search(scorer, plan, ledger, accuracy_filter, work, progress, say).run()


@dataclass
class _Search:
    scorer: Scorer
    plan: SearchPlan
    ledger: Ledger
    filter: AccuracyFilter
    work: RunJobs
    progress: Progress
    say: Say

    def __post_init__(self) -> None:
        # Half of few images choose, the other half measures; a single one must do both.
        self.fresh = min(self.plan.fresh, self.scorer.images // 2)
        self.racing = self.scorer.images - self.fresh
        self.board = Board(self.scorer, self.ledger, self.filter)
        self.rounds: list[RaceRound] = []
        self.left_behind: list[Policy] = []  # for want of gradients, not because they were worse
        score = self.scorer.privacy_score
        self.full_cost = max(1, score.evaluations)
        self.quick_cost = max(1, score.quick.evaluations) if score.quick else self.full_cost
        self.quick_images = min(QUICK_IMAGES, self.racing) if score.quick else 0

    def run(self) -> SearchResult:
        contenders = self.race(self.explore())
        best = contenders[: self.plan.keep]
        last = replace(self.board.goals[best[0]], fresh=self.fresh, all_batches=True)
        self.compute("measuring the best anew", best, last)
        best = self.board.eligible(best)
        if not best:
            raise GradveilError("none of the best policies has a finite score on the fresh images")
        result = self.result(best, (*contenders[self.plan.keep :], *self.left_behind))
        self.close(result)
        return result

    def explore(self) -> list[Policy]:
        """The accuracy filter and a first look for every policy that is drawn; gives those that pass."""
        sampler = self.plan.make_sampler(self.scorer.seed, self.scorer.held_out.image_shape[0])
        images = min(self.plan.first_look, self.racing)
        look = Goal(quick=images) if self.quick_images else Goal(full=images)
        qualified: list[Policy] = []
        while count := self.still_to_draw(len(qualified)):
            drawn = sampler.propose(count)
            if not drawn:
                break
            self.compute(f"a first look at {len(drawn)} policies", drawn, look)
            passed = self.board.eligible(drawn)
            qualified += passed
            sampler.tell({p: (self.board.race_estimate(p).mean, self.board.accuracy(p).mean) for p in passed})
        if not qualified:
            reasons = [why for policy in self.board.goals if (why := self.ledger[policy].failed)]
            reasons.append(f"allow a larger redundancy than {self.plan.redundancy}")
            raise GradveilError(f"none of {len(self.board.goals)} policies qualifies: {reasons[0]}")
        return qualified

    def still_to_draw(self, qualified: int) -> int:
        drawn, asked = len(self.board.goals), self.plan.policies
        if drawn < asked:
            return asked - drawn
        return self.plan.keep - qualified if qualified < self.plan.keep and drawn < MOST_DRAWS * asked else 0

    def race(self, contenders: list[Policy]) -> list[Policy]:
        """Rounds of twice as many images until the places are taken, or gradients or images run out; best first."""
        goal = self.board.goals[contenders[0]]
        while True:
            contenders = self.drop(contenders)
            self.say(
                f"{max(goal.quick, goal.full)} images: {len(contenders)} contenders for {self.plan.keep} places, "
                f"best {contenders[0]} with {self.board.race_estimate(contenders[0])}"
            )
            if len(contenders) <= self.plan.keep:
                return contenders
            following = self.next_goal(goal)
            if following == goal:
                return contenders
            contenders = self.narrow(contenders, goal, following)
            following = self.affordable(len(contenders), goal, following)
            if following == goal:
                return contenders
            goal = following
            self.compute(f"{len(contenders)} contenders for {self.plan.keep} places", contenders, goal)
            contenders = self.board.eligible(contenders)
            if not contenders:
                raise GradveilError("no contender has a finite score on all images")

    def next_goal(self, goal: Goal) -> Goal:
        """Twice as many images, quickly at first; then the same images in full, then twice as many of those."""
        if goal.full:
            return replace(goal, full=min(2 * goal.full, self.racing))
        if goal.quick < self.quick_images:
            return replace(goal, quick=min(2 * goal.quick, self.quick_images))
        return replace(goal, full=goal.quick)

    def narrow(self, contenders: list[Policy], goal: Goal, following: Goal) -> list[Policy]:
        """As many of the best as a round should cost, and some more than there are places."""
        most = int(ROUND_FRACTION * self.gradients_left()) // self.cost(goal, following)
        most = max(most, self.plan.keep + max(2, self.plan.keep // 2))
        self.left_behind += contenders[most:]
        return contenders[:most]

    def affordable(self, contenders: int, goal: Goal, following: Goal) -> Goal:
        """`following`, or what the gradients reach for on the way to it."""
        each = self.gradients_left() // contenders
        if self.cost(goal, following) <= each:
            return following
        if following.full > goal.full > 0:
            return replace(goal, full=goal.full + max(0, each // self.full_cost))
        return goal

    def cost(self, goal: Goal, following: Goal) -> int:
        more_quick, more_full = following.quick - goal.quick, following.full - goal.full
        return more_quick * self.quick_cost + more_full * self.full_cost

    def gradients_left(self) -> int:
        """What the race may still take, when the last measurement is set aside."""
        last = self.plan.keep * (self.fresh * self.full_cost + sum(self.filter.rows))
        most = self.plan.gradients or GRADIENTS_PER_POLICY * self.plan.policies + last
        return max(0, most - self.board.gradients_spent() - last)

    def drop(self, contenders: list[Policy]) -> list[Policy]:
        values = {str(policy): self.board.race_estimate(policy).values for policy in contenders}
        left = survivors(values, self.plan.keep, 1 - (1 - self.plan.confidence) / self.most_rounds)
        by_name = {str(policy): policy for policy in contenders}
        means = {name: statistics.fmean(numbers) for name, numbers in values.items()}
        self.rounds.append(RaceRound(len(values[left[0]]), means, frozenset(values) - frozenset(left)))
        for name in sorted(self.rounds[-1].dropped):
            self.ledger.close(by_name[name], self.board.trial_values(by_name[name]), TrialState.PRUNED)
        return [by_name[name] for name in left]

    @property
    def most_rounds(self) -> int:
        """Looks at the same data: the chance of a wrong drop is shared among them."""
        doublings = math.ceil(math.log2(max(1, self.racing / self.plan.first_look)))
        return 1 + doublings + (1 if self.quick_images else 0)

    def compute(self, title: str, policies: Sequence[Policy], goal: Goal) -> None:
        """Compute what `policies` lack to `goal`, and keep it."""
        self.board.goals.update(dict.fromkeys(policies, goal))
        lacking = [policy for policy in policies if not goal.is_reached(self.ledger[policy], self.filter)]
        if self.ledger.shared and lacking:  # machines that share a study begin at different places
            start = secrets.randbelow(len(lacking))
            lacking = lacking[start:] + lacking[:start]
        with self.progress(title, len(policies), "policies") as advance:
            advance(len(policies) - len(lacking))
            jobs = (
                (policy, entry)
                for policy in lacking
                if not goal.is_reached(entry := self.ledger.latest(policy), self.filter)
            )
            work = partial(reach_goal, goal, self.scorer, self.filter)
            for policy, entry in self.work(work, jobs, describe=lambda job: f"policy {job[0]}"):
                self.ledger.write(policy, entry)
                advance(1)

    def result(self, best: list[Policy], others: Sequence[Policy]) -> SearchResult:
        confidence = self.plan.confidence
        measured = {
            policy: self.board.requested_entry(policy).fresh or self.board.race_estimate(policy).values
            for policy in best
        }
        best = sorted(best, key=lambda policy: (statistics.fmean(measured[policy]), str(policy)))
        same = tied_with({str(policy): measured[policy] for policy in best}, confidence)
        outside = [policy for policy in self.board.eligible(list(self.board.goals)) if policy not in best]
        seen = tuple(
            self.board.outcome(policy, confidence) for policy in self.board.goals if not self.ledger[policy].failed
        )
        return SearchResult(
            best=tuple(
                Candidate(
                    policy=policy,
                    accuracy=self.board.accuracy(policy),
                    privacy=Estimate(measured[policy], self.board.gradients(policy)),
                    interval=mean_interval(measured[policy], confidence),
                    alike=(
                        *(other for other in best if str(other) in same[str(policy)]),
                        *(
                            other
                            for other in outside
                            if not differ(*self.board.paired_scores(policy, other), confidence)
                        ),
                    ),
                    fresh=bool(self.board.requested_entry(policy).fresh),
                )
                for policy in best
            ),
            hybrid=disjoint_hybrid([*best, *self.runners_up(best)]),
            settled=not others,
            contenders=tuple(others),
            front=pareto_front({one.policy: (one.privacy, one.accuracy) for one in seen if one.privacy is not None}),
            seen=seen,
            failed=tuple((p, why) for p in self.board.goals if (why := self.ledger[p].failed)),
            rounds=tuple(self.rounds),
            evaluations=self.board.gradients_spent(),
            confidence=confidence,
            accuracy_threshold=self.filter.threshold,
        )

    def runners_up(self, best: Sequence[Policy]) -> list[Policy]:
        """Who stayed longest in the race comes first: the best often share a function, and a hybrid needs a partner."""
        others = [policy for policy in self.board.eligible(list(self.board.goals)) if policy not in best]
        return sorted(
            others,
            key=lambda p: (
                -len(self.board.requested_entry(p).full),
                -self.board.race_estimate(p).n,
                self.board.race_estimate(p).mean,
                str(p),
            ),
        )

    def close(self, result: SearchResult) -> None:
        """End the trials, for whoever reads the study with Optuna's own tools; the best are the complete ones."""
        for candidate in result.best:
            self.ledger.close(candidate.policy, self.board.trial_values(candidate.policy), TrialState.COMPLETE)
        for policy in self.board.goals:
            if self.ledger[policy].failed:
                self.ledger.close(policy, None, TrialState.FAIL)
            else:
                self.ledger.close(
                    policy, self.board.trial_values(policy) if policy in result.contenders else None, TrialState.PRUNED
                )
