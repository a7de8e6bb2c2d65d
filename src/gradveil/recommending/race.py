"""The race: all candidates are looked at briefly, and those that may still win longer and longer, until the time is used."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.doubtful_weights import doubt_weights
from gradveil.auditing.findings import Findings
from gradveil.auditing.matrix import spread_indices
from gradveil.defenses import NoDefense
from gradveil.errors import GradveilError
from gradveil.federated.early_rounds import rounds_of
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.parallel import LOCAL, RunJobs, starting_workers
from gradveil.progress import Progress, silent
from gradveil.recommending.answers import prospects, recommendation_of
from gradveil.recommending.attacking import CandidateAttacks
from gradveil.recommending.candidates import Candidate, epsilon_note, epsilon_of, parse_candidate
from gradveil.recommending.costs import Costs
from gradveil.recommending.journal import open_journal
from gradveil.recommending.plan import CHECK_ITERATIONS, RecommendPlan
from gradveil.recommending.recommendation import Figures, Recommendation, figures_of
from gradveil.recommending.rounds import Round, fill_round
from gradveil.recommending.survivors import surely_broken, survivors
from gradveil.recommending.timed_trainings import TimedTrainings
from gradveil.recommending.timekeeping import Timekeeper
from gradveil.recommending.trainings import ShortTrainings, shorten
from gradveil.training import Recipe
from gradveil.training.networks import NetworkSource
from gradveil.training.stage import Stage
from gradveil.types import Dataset

# Attacks of the first round end when this part of the budget is used.
FIRST_ATTACKS = 0.3
FIRST_CHECKED = 24
NO_BUDGET = "takes longer than was left of the budget"


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
        rounds = rounds_of([plan.threat], dataset, seed=plan.seed, device=plan.device)
        source = NetworkSource(dataset, plan.model, plan.weights, plan.seed, folder, plan.device, rounds)
        if plan.stage.unit == "epochs":
            # A folder of another race is refused before the training.
            open_journal(folder, plan.settings(dataset.name), self.candidates)
            source = self._train_first(source)
        stage = plan.stage if source.weights is None else Stage("weights")
        # What cannot be built is refused here, before anything is written.
        self.bare_network = source.at(stage).module
        journal = open_journal(folder, plan.settings(dataset.name), self.candidates)
        journal = journal.with_time(60 * plan.budget, plan.check)
        self.time = Timekeeper(folder, journal, 60 * plan.budget, clock, started)
        self.time.note()
        if plan.weights is not None and (doubt := doubt_weights(self.bare_network, dataset)) is not None:
            say(doubt)
        self.figures: dict[str, Figures] = {}
        self.untried: dict[str, str] = {}
        self.findings: dict[str, Findings] = {}
        self.accuracies: dict[int, list[Accuracy]] = {}  # by round
        self.rounds = 0
        self.attacks = CandidateAttacks(plan, dataset, source, stage, folder, workers, backend, jobs, progress)
        trainings = ShortTrainings(plan, shorten(dataset, plan.seed), folder, workers, backend, jobs, progress)
        self.candidates = {name: one for name, one in self.candidates.items() if self._applies(one)}
        self.costs = Costs(plan, self.candidates, len(dataset.train), workers)
        self.trainings = TimedTrainings(trainings, self.costs, self.time, say)

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
            chosen = self._choose(number)
            if len(chosen.attacked) < 2:
                break
            self._play(number, chosen)
        self._check_answers()

    def _first_round(self) -> None:
        for candidate in self.candidates.values():
            name = candidate.name
            wanted = name == UNDEFENDED or f"0 attack {name}" in self.time.took
            if not wanted and self.costs.of_attack(0, candidate, self.time.took) > self.time.left(FIRST_ATTACKS):
                self.untried[name] = NO_BUDGET
                continue
            self.say(f"round 1: {name}")
            try:
                self._attack(0, candidate)
            except GradveilError as error:
                if name == UNDEFENDED:
                    raise
                self.untried[name] = f"could not be attacked: {error}"
        self._judge(0, list(self.findings), [])
        # Where there is no time to train all of them, those that matter most are trained.
        order = sorted(self.trainings.trainable(self.findings), key=lambda name: self.figures[name].percentile)
        accuracies = self.trainings.run_first(order) if order else []
        self._judge(0, list(self.findings), accuracies)
        self.time.choose(0, Round(tuple(self.findings), tuple(dict.fromkeys(one.defense for one in accuracies))))

    def _choose(self, number: int) -> Round:
        """What the round takes up: of those that may still win, as many as fit, the worst left out first."""
        if number < len(self.time.rounds):
            return self.time.rounds[number]
        names = survivors(list(self.figures.values()), number)
        trainable, took = self.trainings.trainable(names), self.time.took
        # The first one is the most likely answer.
        check = sum(self.costs.of_check(self.candidates[name], took) for name in names[:1])
        chosen = fill_round(number, names, trainable, self.costs, took, self.time.left_for_rounds(check))
        if len(chosen.attacked) > 1:
            self.time.choose(number, chosen)
        return chosen

    def _play(self, number: int, chosen: Round) -> None:
        """A round; whoever cannot be attacked keeps the figures of the round before, and goes no further."""
        self.say(f"round {number + 1}: {', '.join(chosen.attacked)}")
        attacked = [name for name in chosen.attacked if self._goes_on(number, self.candidates[name])]
        trained = [name for name in chosen.trained if name in attacked]
        accuracies = self.trainings.run(number, trained) if trained else []
        self._judge(number, attacked, accuracies)

    def _goes_on(self, number: int, candidate: Candidate) -> bool:
        try:
            self._attack(number, candidate)
        except GradveilError as error:
            if candidate.name == UNDEFENDED:
                raise
            self.say(f"{candidate.name} goes no further: {error}")
            self.untried[candidate.name] = f"could not be attacked in round {number + 1}: {error}"
            return False
        return True

    def _check_answers(self) -> None:
        """Attack the answers on images that nothing was chosen by; where one breaks, the next best is checked.

        The best of many looks better than it is: it was chosen for what the race happened to see.
        """
        bare, slow = self.findings[UNDEFENDED], set[str]()
        if not self.plan.check:
            return
        if not self.costs.can_check:
            self.say(f"answers are not checked: rounds may look at all but a few of the {self.costs.available} images")
            return
        if self._unchecked_answers(slow):
            # What is compared with is attacked as long, and on the same images; of so few the race knows no sure figure.
            none = self.candidates[UNDEFENDED]
            most = self.costs.images_to_check(none, self.time.left() / 2, self.time.took, self.time.done_of(UNDEFENDED))
            if images := self._begin_check(none, most if none.threat.unit > 1 else min(FIRST_CHECKED, most)):
                with self.time.timing(f"check {UNDEFENDED}"):
                    bare = self._attack_unseen(none, images, images)
        while names := self._unchecked_answers(slow):
            candidate = self.candidates[names[0]]
            # The first one may take all that is left: few images say little of any.
            most = self.costs.images_to_check(
                candidate, self.time.left(), self.time.took, self.time.done_of(candidate.name)
            )
            images = self._begin_check(candidate, most)
            if not images:
                slow.add(candidate.name)
                continue
            try:
                with self.time.timing(f"check {candidate.name}"):
                    self.figures[candidate.name] = self._check(candidate, images, bare)
            except GradveilError as error:
                self.say(f"{candidate.name} could not be checked: {error}")
                slow.add(candidate.name)

    def _begin_check(self, candidate: Candidate, affordable: int) -> int:
        """On how many images the candidate is checked: once that is decided it stays."""
        images = self.time.checked.get(candidate.name, affordable)
        if images:
            self.time.check(candidate.name, images)
            self.say(f"check on {images} other images: {candidate.name}")
        return images

    def _check(self, candidate: Candidate, images: int, bare: Findings) -> Figures:
        """What is found on images that no round looks at. What breaks beyond doubt on the first few is not attacked on all."""
        number = self.figures[candidate.name].round - 1
        # Of batches nothing could be used again: they are drawn from all images.
        for count in [images] if candidate.threat.unit > 1 else [min(FIRST_CHECKED, images), images]:
            found = self._attack_unseen(candidate, count, images)
            figures = self._figures(number, candidate, found, bare, checked=True)
            if surely_broken(figures, len(self.figures) - 1):
                break
        return figures

    def _attack_unseen(self, candidate: Candidate, count: int, images: int) -> Findings:
        """Attack the first of so many images that no round looks at, as long as attacks get."""
        unseen = self.costs.most_images
        indices = spread_indices(self.dataset.train, unseen + images, seed=self.plan.seed)[unseen:]
        return self.attacks.run(candidate, CHECK_ITERATIONS, indices[:count])

    def _unchecked_answers(self, slow: Collection[str]) -> list[str]:
        """The candidates that answer the questions, or may, but for those that are checked or too slow for it."""
        return [
            name for name in prospects(list(self.figures.values()), self.plan, slow) if not self.figures[name].checked
        ]

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
        first = not any(one.startswith("0 attack") for one in self.time.took)
        expected = 0.0 if first else self.costs.of_attack(number, candidate, self.time.took)
        with self.time.timing(f"{number} attack {candidate.name}", expected=expected):
            indices = spread_indices(self.dataset.train, self.costs.images(number, candidate), seed=self.plan.seed)
            self.findings[candidate.name] = self.attacks.run(candidate, self.plan.levels[number].iterations, indices)

    def _judge(self, number: int, names: Sequence[str], accuracies: list[Accuracy]) -> None:
        self.accuracies[number] = accuracies
        for name in names:
            found, bare = self.findings[name], self.findings[UNDEFENDED]
            self.figures[name] = self._figures(number, self.candidates[name], found, bare)
        self.rounds = number + 1

    def _figures(
        self, number: int, candidate: Candidate, found: Findings, bare: Findings, *, checked: bool = False
    ) -> Figures:
        # What a later round had no time to train keeps what the round before says.
        trained = [one for one in range(number + 1) if any(a.defense == candidate.name for a in self.accuracies[one])]
        last = max(trained, default=number)
        return figures_of(
            candidate,
            found,
            bare,
            self.accuracies[last],
            number=number + 1,
            iterations=CHECK_ITERATIONS if checked else self.plan.levels[number].iterations,
            epochs=self.plan.levels[last].epochs,
            tolerance=self.plan.tolerance,
            retraining=candidate.needs_retraining(self.bare_network),
            checked=checked,
            untrainable=self.trainings.untrainable.get(candidate.name, ""),
        )

    def conclude(self) -> Recommendation:
        """What all of this says."""
        for name, candidate in self.candidates.items():
            if name in self.figures and (epsilon := epsilon_of(candidate, self.dataset)) is not None:
                self.figures[name] = replace(self.figures[name], note=epsilon_note(epsilon))
        figures = tuple(self.figures[name] for name in self.candidates if name in self.figures)
        return recommendation_of(
            figures, self.plan, self.dataset.name, rounds=self.rounds, minutes=self.time.minutes, untried=self.untried
        )
