"""What a round is expected to take, from what those before it took."""

from collections.abc import Mapping
from dataclasses import dataclass

from gradveil.leakage.scenario import UNDEFENDED
from gradveil.recommending.candidates import Candidate
from gradveil.recommending.plan import RecommendPlan

# An answer is checked on at least so many images, or not at all, and on at most so many messages where they have many images.
FEWEST, MESSAGES = 16, 8


@dataclass(frozen=True)
class Costs:
    """Seconds of a candidate's attacks and trainings; `took` are those of the journal so far, by round and name.

    `candidates` are those of the race that apply to its network and threat, no defense first. `available` is how many images
    there are to attack.
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

    @property
    def most_images(self) -> int:
        """How many a candidate's last round would look at; answers are checked on those after them."""
        return max(self.images(len(self.plan.levels) - 1, one) for one in self.candidates.values())

    def images_to_check(self, candidate: Candidate, seconds: float, took: Mapping[str, float]) -> int:
        """On how many images an answer can be checked in so many seconds; 0 where these are too few to say anything."""
        levels, unit = self.plan.levels, candidate.threat.unit
        last = max(number for number in range(len(levels)) if f"{number} attack {candidate.name}" in took)
        each = took[f"{last} attack {candidate.name}"] / self.images(last, candidate)
        each *= levels[-1].iterations / levels[last].iterations
        wanted = max(self.plan.check, MESSAGES * unit) if self.plan.check else 0
        most = min(wanted, self.available - self.most_images, int(max(0.0, seconds) / each))
        images = most - most % unit
        return images if images >= min(FEWEST, self.plan.check) else 0

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
