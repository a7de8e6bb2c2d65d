"""Attacks on candidates: by somebody who ignores the defense, and by somebody who knows it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradveil.attacks import parse_attack, searches
from gradveil.auditing.findings import Findings, findings_of
from gradveil.auditing.matrix import behind
from gradveil.errors import GradveilError
from gradveil.leakage.lots import Cell
from gradveil.leakage.measuring import measure_all
from gradveil.leakage.scenario import Scenario
from gradveil.leakage.shares import Share
from gradveil.parallel import RunJobs
from gradveil.progress import Progress
from gradveil.recommending.candidates import Candidate
from gradveil.recommending.plan import RecommendPlan
from gradveil.training.networks import Network, NetworkSource
from gradveil.training.stage import Stage
from gradveil.types import Dataset


@dataclass(frozen=True)
class CandidateAttacks:
    """Attacks of a plan on training images, kept below `folder`: one that was done is not done again."""

    plan: RecommendPlan
    dataset: Dataset
    source: NetworkSource
    stage: Stage
    folder: Path
    workers: int
    backend: str
    jobs: RunJobs
    progress: Progress
    _networks: dict[str, Network] = field(default_factory=dict)

    def find_obstacle(self, candidate: Candidate) -> GradveilError | None:
        """Why network, threat and defense do not go together; None where they do."""
        try:
            if candidate.threat.unit > len(self.dataset.train):
                raise GradveilError(f"there are only {len(self.dataset.train)} images")
            unit = tuple(range(candidate.threat.unit))
            # What fits an untrained network fits one after some steps or rounds, which take time.
            stage = Stage() if self.stage.unit in ("steps", "rounds") else self.stage
            network = self.source.at(stage, candidate.defense)
            module = self.plan.device.place(network.module)
            for scenario in self._scenarios(candidate, network, self.plan.levels[0].iterations):
                Share.of(scenario, module, self.dataset.train, unit, self.dataset.test).adapted_attack(scenario)
        except GradveilError as error:
            return error
        return None

    def run(self, candidate: Candidate, iterations: int, indices: Sequence[int]) -> Findings:
        """What all attackers find behind the candidate, on training images of these numbers."""
        network = self._network(candidate)
        measured = measure_all(
            [
                Cell(scenario, network.module, behind(scenario, list(indices)))
                for scenario in self._scenarios(candidate, network, iterations)
            ],
            self.dataset.train,
            self.folder,
            public=self.dataset.test,
            workers=self.workers,
            backend=self.backend,
            jobs=self.jobs,
            progress=self.progress,
        )
        (found,) = findings_of([record for records in measured for record in records], ())
        return found

    def _network(self, candidate: Candidate) -> Network:
        if candidate.name not in self._networks:
            self._networks[candidate.name] = self.source.at(self.stage, candidate.defense)
        return self._networks[candidate.name]

    def _scenarios(self, candidate: Candidate, network: Network, iterations: int) -> list[Scenario]:
        return [
            candidate.threat.on(
                Scenario(
                    self.dataset.name,
                    network.name,
                    network.stage,
                    parse_attack(attack, iterations=iterations if searches(attack) else None),
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
