"""The search: a first look at every policy, more looks where they decide, and a last measurement of the winners on fresh images.

S_acc costs as much as many looks, and most policies lose without it: only those who lead are asked for it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from optuna.trial import TrialState
from scipy.special import ndtri

from gradveil.errors import GradveilError
from gradveil.parallel import LOCAL, check_backend, starting_workers, using_one_thread
from gradveil.progress import Progress, silent
from gradveil.scores import NotFinite, Scorer
from gradveil.searching.accuracy_filter import AccuracyFilter
from gradveil.searching.belief import Belief, believe, surest
from gradveil.searching.board import Board
from gradveil.searching.conclusion import close_trials, conclude
from gradveil.searching.controls import Controls
from gradveil.searching.ledger import Ledger, fingerprint
from gradveil.searching.plan import MOST_DRAWS, SearchPlan
from gradveil.searching.published import PublishedPlan, run_published
from gradveil.searching.race import RaceRound, affordable
from gradveil.searching.result import SearchResult, disjoint_hybrid
from gradveil.searching.sampling import RandomSampler
from gradveil.searching.scoring import Goal
from gradveil.searching.workers import Workers
from gradveil.transforms import Policy

Say = Callable[[str], None]

# Quick looks are biased by a little that differs between policies. On fewer images than these it is small beside the noise.
QUICK_IMAGES = 128
# A round may take this fraction of the gradients left.
ROUND_FRACTION = 1 / 2


def search(
    scorer: Scorer,
    storage: Path | str | None = None,
    plan: SearchPlan | PublishedPlan | None = None,
    *,
    workers: int = 1,
    backend: str = LOCAL,
    progress: Progress = silent,
    say: Say = lambda text: None,
) -> SearchResult:
    """Find the most private policies; see `SearchPlan` for how, and `PublishedPlan` for the published procedure.

    `scorer` scores policies, with a model and a score of your own if you like. `storage` is a file for an Optuna study in
    SQLite, any storage URL, or None to keep nothing. Everything computed goes there at once. Started again, also with a larger
    plan, the search goes on from there. `backend` is "loky" for processes here, or a "ray" or "dask" cluster. The result
    depends on the scorer and the plan alone, not on workers, interruptions, or what else the study holds.

        found = search(Scorer(model, fresh, test_images), Path("study.sqlite3"), SearchPlan(policies=300), workers=2)
        found.best[0].policy, found.best[0].interval
    """
    plan = plan or SearchPlan()
    check_backend(backend)
    both = isinstance(plan, SearchPlan) and plan.sampler == "nsga2"
    objectives = ("minimize", "maximize") if both else ("minimize",)
    ledger = Ledger(storage, fingerprint(scorer), objectives=objectives)
    # As the workers: the last digits must not depend on the number of threads.
    with using_one_thread(), scorer.device.computing("--batches"), suppress(NotFinite):
        scorer.privacy(Policy.parse("identity"), range(1), quick=True)  # finds out how the model is best looked at
    with starting_workers(workers, backend) as work:
        if isinstance(plan, PublishedPlan):
            accuracy_filter = AccuracyFilter.of(scorer, 1.0, work, fixed=plan.threshold_for(scorer.definition))
            team = Workers(scorer, accuracy_filter, ledger, work, workers, progress)
            return run_published(Board(scorer, ledger, accuracy_filter), plan, team, say)
        accuracy_filter = AccuracyFilter.of(scorer, plan.redundancy, work)
        team = Workers(scorer, accuracy_filter, ledger, work, workers, progress)
        return _Search(scorer, plan, ledger, accuracy_filter, team, say).run()


@dataclass
class _Search:
    scorer: Scorer
    plan: SearchPlan
    ledger: Ledger
    filter: AccuracyFilter
    workers: Workers
    say: Say

    def __post_init__(self) -> None:
        # Half of few images choose, the other half measures; a single one must do both.
        self.fresh = min(self.plan.fresh, self.scorer.images // 2)
        self.racing = self.scorer.images - self.fresh
        self.board = Board(self.scorer, self.ledger, self.filter)
        self.sampler = self.plan.make_sampler(self.scorer.seed, self.scorer.held_out.image_shape[0])
        # A sampler that learns must not learn from policies that fail the filter.
        self.filter_first = not isinstance(self.sampler, RandomSampler)
        self.rounds: list[RaceRound] = []
        score = self.scorer.privacy_score
        self.costs = {"full": max(1, score.evaluations)}
        if score.quick:
            self.costs["quick"] = max(1, score.quick.evaluations)
        self.level = "quick" if score.quick else "full"
        self.beliefs: dict[str, Belief] = {}  # by level
        # Where gradients do not reach for full looks at all contenders, the line is drawn between those nearest to it.
        self.places = self.plan.keep
        self.safe: list[Policy] = []
        self.left_behind: list[Policy] = []

    def run(self) -> SearchResult:
        contenders = self.race(self.explore())
        best, others = self.safe + contenders[: self.places], contenders[self.places :] + self.left_behind
        last = {policy: replace(self.board.goals[policy], fresh=self.fresh) for policy in best}
        self.compute("measuring the best anew", last)
        best = self.board.eligible(best)
        if not best:
            raise GradveilError("none of the best policies has a finite score on the fresh images")
        hybrid = self.hybrid(best)
        result = conclude(self.board, self.beliefs, best, others, hybrid, self.rounds, self.plan.confidence)
        close_trials(self.board, result)
        return Controls(self.board, self.fresh, self.plan.confidence).compare(self.workers, result)

    def explore(self) -> list[Policy]:
        """A first look at every policy that is asked for; gives those that may race."""
        while (count := self.plan.policies - len(self.board.goals)) > 0 and self.draw(count):
            pass
        return self.board.eligible(list(self.board.goals))

    def draw(self, count: int) -> list[Policy]:
        """At most so many more policies, looked at."""
        drawn = self.sampler.propose(count)
        if drawn:
            images = min(self.plan.first_look, self.racing)
            look = Goal(pixels=self.plan.sharing, accuracy=self.filter_first)
            look = replace(look, quick=images) if self.level == "quick" else replace(look, full=images)
            self.compute(f"a first look at {len(drawn)} policies", dict.fromkeys(drawn, look))
            if self.filter_first:
                passed = self.board.eligible(drawn)
                scores = {p: (self.board.race_estimate(p).mean, self.board.accuracy(p).mean) for p in passed}
                self.sampler.tell(scores)
        return drawn

    def race(self, contenders: list[Policy]) -> list[Policy]:
        """Rounds of looks until the places are taken, or gradients or images run out.

        Gives those who take the places, best first, and after them those who still could.
        """
        while True:
            contenders = self.drop(self.rank(contenders))
            self.say(
                f"up to {self.rounds[-1].images} images: {len(contenders)} contenders for {self.places} places, "
                f"best {contenders[0]} with {self.belief.mean(str(contenders[0])):.4f}"
            )
            goals = self.next_goals(contenders)
            if not goals:
                return contenders
            self.compute(f"{len(goals)} of {len(contenders)} contenders for {self.places} places", goals)
            gone = {*self.safe, *self.left_behind}
            contenders = [policy for policy in self.board.eligible(contenders) if policy not in gone]

    @property
    def belief(self) -> Belief:
        """What is known from looks at the level of the race."""
        return self.beliefs[self.level]

    def learn(self) -> None:
        """Take in all looks at the level of the race, those at policies long dropped too."""
        entries = {str(p): entry for p in self.board.goals if not (entry := self.board.requested_entry(p)).failed}
        looks = {name: values for name, entry in entries.items() if (values := getattr(entry, self.level))}
        pixels = {name: entries[name].pixels for name in looks}
        # Who is looked at in full after quick looks is one of few, on many images: nobody else could help.
        sharing = self.plan.sharing and (self.level == "quick" or "quick" not in self.costs)
        with using_one_thread():
            if looks:
                self.beliefs[self.level] = believe(looks, pixels if sharing else None)

    def rank(self, contenders: list[Policy]) -> list[Policy]:
        """The contenders, best first; those on the first places have passed the filter."""
        self.learn()
        while True:
            contenders = sorted(contenders, key=lambda policy: (self.belief.mean(str(policy)), str(policy)))
            unknown = [p for p in contenders[: self.places] if not self.board.goals[p].accuracy]
            few = len(contenders) < self.places and len(self.board.goals) < MOST_DRAWS * self.plan.policies
            if unknown:
                contenders = self.check_accuracy(contenders, unknown)
            elif few and (drawn := self.draw(self.places - len(contenders))):
                contenders = contenders + self.board.eligible(drawn)
                self.learn()
            else:
                break
        if not contenders:
            reasons = [why for policy in self.board.goals if (why := self.ledger[policy].failed)]
            reasons.append(f"allow a larger redundancy than {self.plan.redundancy}")
            raise GradveilError(f"none of {len(self.board.goals)} policies qualifies: {reasons[0]}")
        return contenders

    def check_accuracy(self, policies: Sequence[Policy], unknown: Sequence[Policy]) -> list[Policy]:
        """`policies` without those of `unknown` that fail the filter."""
        goals = {policy: replace(self.board.goals[policy], accuracy=True) for policy in unknown}
        self.compute(f"the accuracy of {len(goals)} policies", goals)
        return self.board.eligible(policies)

    def drop(self, contenders: list[Policy]) -> list[Policy]:
        """Those on the first places, and who could still get in."""
        inside = set(contenders[: self.places])
        left = [p for p in contenders if p in inside or self.from_line(contenders, p) <= self.reach]
        dropped = [policy for policy in contenders if policy not in set(left)]
        images = max(len(getattr(self.board.requested_entry(policy), self.level)) for policy in contenders)
        means = {str(policy): self.believed(policy) for policy in (*self.safe, *contenders)}
        self.rounds.append(RaceRound(images, means, frozenset(map(str, dropped))))
        for policy in dropped:
            self.ledger.close(policy, self.board.trial_values(policy), TrialState.PRUNED)
        return left

    def from_line(self, contenders: Sequence[Policy], policy: Policy) -> float:
        """How many standard errors a contender is away from the last that is in."""
        return self.belief.distance(str(policy), str(contenders[min(self.places, len(contenders)) - 1]))

    @property
    def reach(self) -> float:
        """So many standard errors are more than chance: the chance of a wrong drop is shared among all looks at the data."""
        doublings = math.ceil(math.log2(max(1, self.racing / self.plan.first_look)))
        return float(ndtri(1 - (1 - self.plan.confidence) / (1 + doublings + ("quick" in self.costs))))

    def next_goals(self, contenders: list[Policy]) -> dict[Policy, Goal]:
        """Twice as many images for those nearest to the line between in and out, as far as gradients go."""
        if len(contenders) <= self.places:
            return {}
        most = min(QUICK_IMAGES, self.racing) if self.level == "quick" else self.racing
        seen = {policy: len(getattr(self.board.requested_entry(policy), self.level)) for policy in contenders}
        away = {policy: self.from_line(contenders, policy) for policy in contenders if seen[policy] < most}
        unsure = sorted((p for p in away if away[p] <= self.reach), key=lambda p: (away[p], str(p)))
        if not unsure:
            return self.in_full(contenders, most) if self.level == "quick" else {}
        wanted = {policy: min(2 * seen[policy], most) for policy in unsure}
        prices = [self.costs[self.level] * (wanted[policy] - seen[policy]) for policy in unsure]
        count = affordable(prices, self.gradients_left(), ROUND_FRACTION)
        return {
            policy: replace(self.board.goals[policy], quick=wanted[policy])
            if self.level == "quick"
            else replace(self.board.goals[policy], full=wanted[policy])
            for policy in unsure[:count]
        }

    def in_full(self, contenders: list[Policy], images: int) -> dict[Policy, Goal]:
        """The same images in full for those nearest to the line, as many as gradients reach for."""
        nearest = sorted(contenders, key=lambda policy: (self.from_line(contenders, policy), str(policy)))
        unknown = [policy for policy in nearest if not self.board.goals[policy].accuracy]
        prices = [images * self.costs["full"] + (policy in unknown) * sum(self.filter.rows) for policy in nearest]
        chosen = set(nearest[: affordable(prices, self.gradients_left(), 1)])
        inside, outside = contenders[: self.places], contenders[self.places :]
        if not chosen.intersection(outside):
            return {}
        self.safe = [policy for policy in inside if policy not in chosen]
        self.left_behind = [policy for policy in outside if policy not in chosen]
        self.places -= len(self.safe)
        racing = self.check_accuracy(sorted(chosen, key=str), [policy for policy in unknown if policy in chosen])
        self.level = "full"
        return {policy: replace(self.board.goals[policy], full=images) for policy in racing}

    def gradients_left(self) -> int:
        """What the race may still take, when the last measurement, controls and a partner for the hybrid are set aside."""
        batches = sum(self.filter.rows)
        most, last = (count(self.scorer, batches) for count in (self.plan.most_gradients, self.plan.last_gradients))
        return max(0, most - self.board.gradients_spent() - last)

    def compute(self, title: str, goals: Mapping[Policy, Goal]) -> None:
        """Compute what policies lack to their goals, and keep it."""
        self.board.goals.update(goals)
        self.workers.reach(title, goals)

    def hybrid(self, best: list[Policy]) -> Policy:
        """The best that share no function. A partner from outside the best must pass the filter too."""
        others = [p for p in self.board.eligible(list(self.board.goals)) if p not in best]
        ranked = best + sorted(others, key=lambda p: (self.believed(p), str(p)))
        while True:
            chosen = disjoint_hybrid(ranked, self.plan.hybrid)
            members = [policy for policy in ranked if set(policy.members) <= set(chosen.members)]
            unknown = [policy for policy in members if not self.board.goals[policy].accuracy]
            if not unknown:
                return chosen
            ranked = self.check_accuracy(ranked, unknown)

    def believed(self, policy: Policy) -> float:
        """The score as far as it is known."""
        return surest(self.beliefs, policy).mean(str(policy))
