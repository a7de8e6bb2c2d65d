"""What a round is expected to take, from what those before it took."""

from collections.abc import Mapping
from dataclasses import dataclass

from gradveil.leakage.scenario import UNDEFENDED
from gradveil.recommending.candidates import Candidate
from gradveil.recommending.plan import RecommendPlan


@dataclass(frozen=True)
class Costs:
    """Seconds of a candidate's attacks and trainings; `took` are those of the journal so far, by round and name.

    `candidates` are all of the race, which begins without a defense. `available` is how many images there are to attack.
    """

    plan: RecommendPlan
    candidates: Mapping[str, Candidate]
    available: int
    workers: int

    def images(self, number: int, candidate: Candidate) -> int:
        """Images of a round: whole messages, at least one."""
        unit = candidate.threat.unit
        most = self.available - self.available % unit
        return min(most, unit * -(-self.plan.levels[number].images // unit))

    def of_round(self, number: int, candidate: Candidate, took: Mapping[str, float]) -> float:
        """A later round, as a whole."""
        trained = 0.0 if candidate.is_deployment else self.of_trainings(number, candidate, took)
        return self.of_attack(number, candidate, took) + trained

    def of_attack(self, number: int, candidate: Candidate, took: Mapping[str, float]) -> float:
        """All attacks of a round."""
        levels, images = self.plan.levels, self.images(number, candidate)
        if number == 0:
            known = [one for one in self.candidates.values() if f"0 attack {one.name}" in took]
            # The quickest of those before it: the first also waited for workers to start.
            return self._first_work(candidate) * min(
                took[f"0 attack {one.name}"] / self._first_work(one) for one in known
            )
        before = self.images(number - 1, candidate)
        last = took[f"{number - 1} attack {candidate.name}"]
        longer = levels[number].iterations / levels[number - 1].iterations
        if longer == 1 and candidate.threat.unit == 1:
            return last * (images - before) / before  # records are used again
        return last * longer * images / before

    def of_trainings(self, number: int, candidate: Candidate, took: Mapping[str, float]) -> float:
        """All trainings of a round."""
        first, level = self.plan.levels[0], self.plan.levels[number]
        bare = took[f"0 train {UNDEFENDED}"] * candidate.slowness
        once = took.get(f"0 train {candidate.name}", bare) / first.epochs
        if number == 0:
            return once * level.epochs
        before = self.plan.levels[number - 1]
        new = level.trainings - (before.trainings if before.epochs == level.epochs else 0)
        return once * level.epochs * new / min(self.workers, 2)  # some of them run side by side

    def _first_work(self, candidate: Candidate) -> float:
        """The attacks of the first round, in attacks without a defense."""
        attackers = len(candidate.threat.attackers(str(candidate.defense)))
        return self.images(0, candidate) * attackers * candidate.slowness
