"""The race: all candidates are looked at briefly, and those that may still win longer and longer, until the time is used."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.doubtful_weights import doubt_weights
from gradveil.auditing.findings import Findings
from gradveil.auditing.matrix import spread_indices
from gradveil.defenses import NoDefense
from gradveil.errors import GradveilError
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.parallel import LOCAL, RunJobs, starting_workers
from gradveil.progress import Progress, silent
from gradveil.recommending.answers import answer_questions, headline_of
from gradveil.recommending.attacking import CandidateAttacks
from gradveil.recommending.candidates import Candidate, epsilon_note, epsilon_of, parse_candidate
from gradveil.recommending.costs import Costs
from gradveil.recommending.front import pareto_front
from gradveil.recommending.journal import open_journal
from gradveil.recommending.plan import Level, RecommendPlan
from gradveil.recommending.recommendation import Figures, Recommendation, figures_of
from gradveil.recommending.survivors import surely_broken, survivors
from gradveil.recommending.timekeeping import Timekeeper
from gradveil.recommending.trainings import ShortTrainings, shorten
from gradveil.training import Recipe
from gradveil.training.networks import NetworkSource
from gradveil.training.stage import Stage
from gradveil.types import Dataset

# The first round ends when these parts of the budget are used, by attacks and then by trainings. The last part of the budget is
# for checking the answers.
FIRST_ATTACKS, FIRST_TRAININGS, ROUNDS = 0.3, 0.4, 0.7
FIRST_CHECKED = 24
NO_BUDGET = "no time left in the budget"


def recommend(
    plan: RecommendPlan,
    dataset: Dataset,
    folder: Path,
    *,
    workers: int = 1,
    backend: str = LOCAL,
    say: Callable[[str], None] = lambda text: None,
    progress: Progress = silent,
    clock: Callable[[], float] = time.monotonic,
) -> Recommendation:
    """Race the candidates and say what to do.

    Training images are attacked, test images are public, as in an audit. What is in the folder is not done again, and the time
    that earlier sessions took counts. What the clock decides, which candidates a round takes up, is written down; given that, the
    result depends on the seed alone.
    """
    with starting_workers(workers, backend) as jobs:
        race = _Race(plan, dataset, folder, workers, backend, jobs, say, progress, clock)
        race.run()
        result = race.conclude()
    race.time.conclude(asdict(result))
    return result


class _Race:
    """A race under way."""

    def __init__(
        self,
        plan: RecommendPlan,
        dataset: Dataset,
        folder: Path,
        workers: int,
        backend: str,
        jobs: RunJobs,
        say: Callable[[str], None],
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self.plan, self.dataset, self.workers = plan, dataset, workers
        self.say, self.progress = say, progress
        self.candidates = {one.name: one for one in (parse_candidate(text, plan.threat) for text in plan.candidates)}
        started = clock()
        source = NetworkSource(dataset, plan.model, plan.weights, plan.seed, folder, plan.device)
        if plan.stage.unit == "epochs":
            # A folder of another race is refused before the training.
            open_journal(folder, plan.settings(dataset.name), self.candidates)
            source = self._train_first(source)
        stage = plan.stage if source.weights is None else Stage("weights")
        # What cannot be built is refused here, before anything is written.
        self.bare_network = source.at(stage).module
        journal = open_journal(folder, plan.settings(dataset.name), self.candidates)
        self.time = Timekeeper(folder, journal, 60 * plan.budget, clock, started)
        if plan.weights is not None and (doubt := doubt_weights(self.bare_network, dataset)) is not None:
            say(doubt)
        self.figures: dict[str, Figures] = {}
        self.untried: dict[str, str] = {}
        self.untrainable: dict[str, str] = {}  # and why
        self.findings: dict[str, Findings] = {}
        self.accuracies: dict[int, list[Accuracy]] = {}  # by round
        self.rounds = 0
        self.attacks = CandidateAttacks(plan, dataset, source, stage, folder, workers, backend, jobs, progress)
        self.trainings = ShortTrainings(plan, shorten(dataset, plan.seed), folder, workers, backend, jobs, progress)
        self.candidates = {name: one for name, one in self.candidates.items() if self._applies(one)}
        self.costs = Costs(plan, self.candidates, len(dataset.train), workers)

    def _train_first(self, source: NetworkSource) -> NetworkSource:
        """One network, trained without a defense, that all candidates are attacked on: one for each would take the budget."""
        epochs = self.plan.epochs
        self.say(f"the threat is on a trained network: one is trained for {epochs} epochs first; --weights takes yours")
        done = source.train(NoDefense(), Recipe(epochs=epochs), self.plan.seed, progress=self.progress)
        return replace(source, weights=done.weights)

    def run(self) -> None:
        """All rounds that fit into the budget, then a check of the answers."""
        self._first_round()
        for number in range(1, len(self.plan.levels)):
            names = self._choose(number)
            if len(names) < 2:
                break
            self._play(number, names)
        self._check_answers()

    def _first_round(self) -> None:
        for candidate in self.candidates.values():
            name = candidate.name
            wanted = name == UNDEFENDED or f"0 attack {name}" in self.time.took
            if not wanted and self.costs.of_attack(0, candidate, self.time.took) > self.time.left(FIRST_ATTACKS):
                self.untried[name] = NO_BUDGET
                continue
            self.say(f"round 1: {name}")
            self._attack(0, candidate)
        self._judge(0, list(self.findings), [])
        # Where there is no time to train all of them, those that matter most are trained.
        order = [UNDEFENDED, *(name for name in sorted(self.figures, key=self._promise) if name != UNDEFENDED)]
        self._judge(0, list(self.findings), self._train_first_round(order))
        self.time.choose(0, tuple(self.findings))

    def _promise(self, name: str) -> float:
        return self.figures[name].percentile

    def _choose(self, number: int) -> tuple[str, ...]:
        """What the round takes up: of those that may still win, as many as fit, the worst left out first."""
        if number < len(self.time.chosen):
            return self.time.chosen[number]
        names = survivors(list(self.figures.values()), number)
        costs = {
            name: self.costs.of_round(number, self.candidates[name], self.time.took) for name in (UNDEFENDED, *names)
        }
        left = self.time.left(ROUNDS) - costs.pop(UNDEFENDED)
        chosen = [UNDEFENDED]
        for name, cost in costs.items():
            if cost <= left:
                chosen.append(name)
                left -= cost
        if len(chosen) > 1:
            self.time.choose(number, tuple(chosen))
        return tuple(chosen)

    def _play(self, number: int, names: Sequence[str]) -> None:
        self.say(f"round {number + 1}: {', '.join(names)}")
        for name in names:
            self._attack(number, self.candidates[name])
        self._judge(number, names, self._train(number, self._trainable(names)))

    def _check_answers(self) -> None:
        """Attack the answers on images that nothing was chosen by; where one breaks, the next best is checked.

        The best of many looks better than it is: it was chosen for what the race happened to see.
        """
        while names := self._unchecked_answers():
            candidate = self.candidates[names[0]]
            images = self.time.checked.get(candidate.name, 0)
            if not images:
                images = self.costs.images_to_check(candidate, self.time.left() / len(names), self.time.took)
                if not images:
                    return
                self.time.check(candidate.name, images)
            self.say(f"check on {images} other images: {candidate.name}")
            with self.time.timing(f"check {candidate.name}"):
                self.figures[candidate.name] = self._check(candidate, images)

    def _check(self, candidate: Candidate, images: int) -> Figures:
        """What is found on images that no round looks at. What breaks beyond doubt on the first few is not attacked on all."""
        unseen, number = self.costs.most_images, self.figures[candidate.name].round - 1
        indices = spread_indices(self.dataset.train, unseen + images, seed=self.plan.seed)[unseen:]
        # Of batches nothing could be used again: they are drawn from all images.
        for count in [images] if candidate.threat.unit > 1 else [min(FIRST_CHECKED, images), images]:
            found = self.attacks.run(candidate, self.plan.levels[-1].iterations, indices[:count])
            figures = self._figures(number, candidate, found, checked=True)
            if surely_broken(figures, len(self.figures) - 1):
                break
        return figures

    def _unchecked_answers(self) -> list[str]:
        """The candidates that the answers name, but for those that are checked or surely broken."""
        figures = list(self.figures.values())
        named = [one.candidate for one in answer_questions(figures, self.plan, self.dataset.name)]
        wanted = [self.figures[name] for name in dict.fromkeys(named) if name is not None]
        return [one.name for one in wanted if not one.checked and not surely_broken(one, len(figures) - 1)]

    def _applies(self, candidate: Candidate) -> bool:
        """Whether network, threat and defense go together; why not is noted."""
        obstacle = self.attacks.find_obstacle(candidate)
        if obstacle is None:
            return True
        if candidate.name == UNDEFENDED:
            raise obstacle
        self.untried[candidate.name] = f"does not apply: {obstacle}"
        return False

    def _attack(self, number: int, candidate: Candidate) -> None:
        with self.time.timing(f"{number} attack {candidate.name}"):
            indices = spread_indices(self.dataset.train, self.costs.images(number, candidate), seed=self.plan.seed)
            self.findings[candidate.name] = self.attacks.run(candidate, self.plan.levels[number].iterations, indices)

    def _trainable(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not self.candidates[name].is_deployment]

    def _train_first_round(self, names: Sequence[str]) -> list[Accuracy]:
        """Train with the defenses in their order, `workers` at a time, only as long as there is time for it."""
        found = self._train(0, [UNDEFENDED])
        wanted = [name for name in self._trainable(names) if name != UNDEFENDED]
        # What an earlier session has trained counts, whatever was at work beside it.
        done = [name for name in wanted if f"0 train {name}" in self.time.took]
        found += self._train(0, done) if done else []
        wanted = [name for name in wanted if name not in done]
        while wanted:
            some, wanted = wanted[: self.workers], wanted[self.workers :]
            seconds = max(self.costs.of_trainings(0, self.candidates[name], self.time.took) for name in some)
            if seconds <= self.time.left(FIRST_TRAININGS):
                found += self._train(0, some)
        return found

    def _train(self, number: int, names: Sequence[str]) -> list[Accuracy]:
        """The trainings of a round with each of the defenses; what cannot be trained is said, and left out."""
        level, defenses = self.plan.levels[number], [self.candidates[name].defense for name in names]
        try:
            with self.time.timing(*(f"{number} train {name}" for name in names)):
                return self.trainings.run(level, defenses)
        except GradveilError as error:
            if UNDEFENDED in names and len(names) == 1:
                raise
            if len(names) > 1:  # one of them cannot be trained; the others can
                return [one for name in names for one in self._train(number, [name])]
            self.say(f"{names[0]} cannot be trained: {error}")
            self.untrainable[names[0]] = str(error)
            return []

    def _judge(self, number: int, names: Sequence[str], accuracies: list[Accuracy]) -> None:
        self.accuracies[number] = accuracies
        for name in names:
            self.figures[name] = self._figures(number, self.candidates[name], self.findings[name])
        self.rounds = number + 1

    def _figures(self, number: int, candidate: Candidate, found: Findings, *, checked: bool = False) -> Figures:
        level: Level = self.plan.levels[-1 if checked else number]
        return figures_of(
            candidate,
            found,
            self.findings[UNDEFENDED],
            self.accuracies[number],
            number=number + 1,
            iterations=level.iterations,
            epochs=self.plan.levels[number].epochs,
            tolerance=self.plan.tolerance,
            retraining=candidate.needs_retraining(self.bare_network),
            checked=checked,
            untrainable=self.untrainable.get(candidate.name, ""),
        )

    def conclude(self) -> Recommendation:
        """What all of this says."""
        for name, candidate in self.candidates.items():
            if name in self.figures and (epsilon := epsilon_of(candidate, self.dataset)) is not None:
                self.figures[name] = replace(self.figures[name], note=epsilon_note(epsilon))
        figures = tuple(self.figures[name] for name in self.candidates if name in self.figures)
        points = {one.name: (one.percentile, one.loss) for one in figures if one.loss is not None}
        return Recommendation(
            model=self.plan.model,
            dataset=self.dataset.name,
            threat=str(self.plan.threat),
            rounds=self.rounds,
            minutes=self.time.minutes,
            headline=headline_of(figures, self.plan.tolerance),
            figures=figures,
            front=tuple(pareto_front(points)),
            answers=answer_questions(figures, self.plan, self.dataset.name),
            untried=self.untried,
        )
