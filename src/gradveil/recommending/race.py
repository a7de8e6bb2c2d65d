"""The race: all candidates are looked at briefly, and those that may still win longer and longer, until the time is used."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from gradveil.attacks import parse_attack
from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.findings import Findings, findings_of
from gradveil.auditing.matrix import behind, spread_indices
from gradveil.errors import GradveilError
from gradveil.leakage.lots import Cell
from gradveil.leakage.measuring import measure_all
from gradveil.leakage.scenario import UNDEFENDED, Scenario
from gradveil.leakage.shares import Share
from gradveil.parallel import LOCAL, RunJobs, starting_workers
from gradveil.progress import Progress, silent
from gradveil.recommending.answers import answer_questions, headline_of
from gradveil.recommending.candidates import Candidate, epsilon_of, parse_candidate
from gradveil.recommending.costs import Costs
from gradveil.recommending.front import pareto_front
from gradveil.recommending.journal import open_journal, write_journal
from gradveil.recommending.plan import Level, RecommendPlan
from gradveil.recommending.recommendation import Figures, Recommendation, figures_of
from gradveil.recommending.survivors import survivors
from gradveil.recommending.trainings import ShortTrainings, shorten
from gradveil.training.networks import Network, NetworkSource
from gradveil.types import Dataset

# The first round ends when these parts of the budget are used, by attacks and then by trainings.
FIRST_ATTACKS, FIRST_TRAININGS = 0.5, 0.7
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
    write_journal(folder, race.journal, asdict(result))
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
        self.plan, self.dataset, self.folder = plan, dataset, folder
        self.workers, self.backend, self.jobs = workers, backend, jobs
        self.say, self.progress, self.clock = say, progress, clock
        self.candidates = {one.name: one for one in (parse_candidate(text, plan.threat) for text in plan.candidates)}
        self.costs = Costs(plan, self.candidates, len(dataset.train), workers)
        self.source = NetworkSource(dataset, plan.model, plan.weights, plan.seed, folder, plan.device)
        # What cannot be built is refused here, before anything is written.
        self.bare_network = self.source.at(plan.stage).module
        self.journal = open_journal(folder, self._settings())
        self.started, self.before = clock(), self.journal.elapsed
        self.figures: dict[str, Figures] = {}
        self.untried: dict[str, str] = {}
        self.networks: dict[str, Network] = {}
        self.findings: dict[str, Findings] = {}
        self.rounds = 0
        self.trainings = ShortTrainings(plan, shorten(dataset, plan.seed), folder, workers, backend, jobs, progress)

    def _settings(self) -> dict[str, str]:
        plan = self.plan
        return {
            "model": plan.model,
            "dataset": self.dataset.name,
            "weights": str(plan.weights or ""),
            "threat": str(plan.threat),
            "attacks": ",".join(plan.attacks),
            "candidates": " ; ".join(self.candidates),
            "seed": str(plan.seed),
            "device": plan.device.kind,
        }

    @property
    def spent(self) -> float:
        """Seconds, those of earlier sessions included."""
        return self.before + self.clock() - self.started

    @property
    def budget(self) -> float:
        return 60 * self.plan.budget

    def run(self) -> None:
        """All rounds that fit into the budget."""
        self._first_round()
        for number in range(1, len(self.plan.levels)):
            names = self._choose(number)
            if len(names) < 2:
                break
            self._play(number, names)

    def _first_round(self) -> None:
        for candidate in self.candidates.values():
            name = candidate.name
            if not self._applies(candidate):
                continue
            wanted = name == UNDEFENDED or self._is_done(f"0 attack {name}")
            if (
                not wanted
                and self.spent + self.costs.of_attack(0, candidate, self.journal.seconds) > FIRST_ATTACKS * self.budget
            ):
                self.untried[name] = NO_BUDGET
                continue
            self.say(f"round 1: {name}")
            self._attack(0, candidate)
        self._judge(0, list(self.findings), [])
        # Where there is no time to train all of them, those that matter most are trained.
        order = [UNDEFENDED, *(name for name in sorted(self.figures, key=self._promise) if name != UNDEFENDED)]
        accuracies = self._train(0, order, FIRST_TRAININGS * self.budget)
        self._judge(0, list(self.findings), accuracies)
        self._note(0, tuple(self.findings))

    def _promise(self, name: str) -> float:
        return self.figures[name].percentile

    def _choose(self, number: int) -> tuple[str, ...]:
        """What the round takes up: of those that may still win, as many as fit, the worst left out first."""
        if number < len(self.journal.chosen):
            return self.journal.chosen[number]
        names = survivors(list(self.figures.values()), number)
        costs = {
            name: self.costs.of_round(number, self.candidates[name], self.journal.seconds)
            for name in (UNDEFENDED, *names)
        }
        left = self.budget - self.spent - costs.pop(UNDEFENDED)
        chosen = [UNDEFENDED]
        for name, cost in costs.items():
            if cost <= left:
                chosen.append(name)
                left -= cost
        if len(chosen) > 1:
            self._note(number, tuple(chosen))
        return tuple(chosen)

    def _play(self, number: int, names: Sequence[str]) -> None:
        self.say(f"round {number + 1}: {', '.join(names)}")
        for name in names:
            self._attack(number, self.candidates[name])
        accuracies = self._train(number, names, None)
        self._judge(number, names, accuracies)

    def _applies(self, candidate: Candidate) -> bool:
        """Whether network, threat and defense go together; why not is noted."""
        try:
            self.networks[candidate.name] = self.source.at(self.plan.stage, candidate.defense)
            for scenario in self._scenarios(0, candidate):
                network = self.networks[candidate.name].module
                if candidate.threat.unit > len(self.dataset.train):
                    raise GradveilError(f"there are only {len(self.dataset.train)} images")
                unit = tuple(range(candidate.threat.unit))
                Share.of(scenario, network, self.dataset.train, unit, self.dataset.test).adapted_attack(scenario)
        except GradveilError as error:
            if candidate.name == UNDEFENDED:
                raise
            self.untried[candidate.name] = f"does not apply: {error}"
            return False
        return True

    def _scenarios(self, number: int, candidate: Candidate) -> list[Scenario]:
        network, iterations = self.networks[candidate.name], self.plan.levels[number].iterations
        return [
            candidate.threat.on(
                Scenario(
                    self.dataset.name,
                    network.name,
                    network.stage,
                    parse_attack(attack, iterations=iterations),
                    candidate.defense,
                    attacker,
                    self.plan.seed,
                    together=True,  # whatever the number of images, or records of one round would not count in the next
                    device=self.plan.device,
                )
            )
            for attack in self.plan.attacks
            for attacker in candidate.threat.attackers(str(candidate.defense))
        ]

    def _attack(self, number: int, candidate: Candidate) -> None:
        if candidate.name not in self.networks:
            self.networks[candidate.name] = self.source.at(self.plan.stage, candidate.defense)
        start = self.clock()
        indices = spread_indices(self.dataset.train, self.costs.images(number, candidate), seed=self.plan.seed)
        network = self.networks[candidate.name].module
        scenarios = self._scenarios(number, candidate)
        measured = measure_all(
            [Cell(scenario, network, behind(scenario, indices)) for scenario in scenarios],
            self.dataset.train,
            self.folder,
            public=self.dataset.test,
            workers=self.workers,
            backend=self.backend,
            jobs=self.jobs,
            progress=self.progress,
        )
        (self.findings[candidate.name],) = findings_of([record for records in measured for record in records], ())
        self._took(f"{number} attack {candidate.name}", start)

    def _train(self, number: int, names: Sequence[str], until: float | None) -> list[Accuracy]:
        """Train with every defense; in the first round, `workers` at a time, only as long as there is time for it."""
        defenses = [name for name in names if not self.candidates[name].is_deployment]
        if until is None:
            return self._train_some(number, defenses)
        found = self._train_some(number, [UNDEFENDED])
        wanted = defenses[1:]
        while wanted:
            some, wanted = wanted[: self.workers], wanted[self.workers :]
            seconds = max(self.costs.of_trainings(number, self.candidates[name], self.journal.seconds) for name in some)
            if all(f"{number} train {name}" in self.journal.seconds for name in some) or self.spent + seconds <= until:
                found += self._train_some(number, some)
        return found

    def _train_some(self, number: int, names: Sequence[str]) -> list[Accuracy]:
        start = self.clock()
        try:
            found = self.trainings.run(self.plan.levels[number], [self.candidates[name].defense for name in names])
        except GradveilError as error:
            if UNDEFENDED in names and len(names) == 1:
                raise
            if len(names) > 1:  # one of them cannot be trained; the others can
                return [one for name in names for one in self._train_some(number, [name])]
            self.say(f"{names[0]} cannot be trained: {error}")
            return []
        for name in names:
            self._took(f"{number} train {name}", start)
        return found

    def _judge(self, number: int, names: Sequence[str], accuracies: list[Accuracy]) -> None:
        level: Level = self.plan.levels[number]
        for name in names:
            candidate = self.candidates[name]
            self.figures[name] = figures_of(
                candidate,
                self.findings[name],
                self.findings[UNDEFENDED],
                accuracies,
                number=number + 1,
                iterations=level.iterations,
                epochs=level.epochs,
                tolerance=self.plan.tolerance,
                retraining=candidate.needs_retraining(self.bare_network),
            )
        self.rounds = number + 1

    def _is_done(self, what: str) -> bool:
        return what in self.journal.seconds

    def _took(self, what: str, start: float) -> None:
        self.journal = replace(self.journal.took(what, self.clock() - start), elapsed=round(self.spent, 1))
        write_journal(self.folder, self.journal)

    def _note(self, number: int, names: tuple[str, ...]) -> None:
        self.journal = replace(self.journal.choose(number, names), elapsed=round(self.spent, 1))
        write_journal(self.folder, self.journal)

    def conclude(self) -> Recommendation:
        """What all of this says."""
        for name, candidate in self.candidates.items():
            if name in self.figures and (epsilon := epsilon_of(candidate, self.dataset)) is not None:
                self.figures[name] = replace(self.figures[name], note=f"epsilon {epsilon:.3g}")
        figures = tuple(self.figures[name] for name in self.candidates if name in self.figures)
        points = {one.name: (one.percentile, one.cost) for one in figures if one.cost is not None}
        return Recommendation(
            model=self.plan.model,
            dataset=self.dataset.name,
            threat=str(self.plan.threat),
            rounds=self.rounds,
            minutes=round(self.journal.elapsed / 60, 1),
            headline=headline_of(figures, self.plan.tolerance),
            figures=figures,
            front=tuple(pareto_front({name: (x, y) for name, (x, y) in points.items() if y is not None})),
            answers=answer_questions(figures, self.plan, self.dataset.name),
            untried=self.untried,
        )
