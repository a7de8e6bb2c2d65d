"""What a round is expected to take, from what those before it took."""

from collections.abc import Mapping
from dataclasses import dataclass

from gradveil.leakage.scenario import UNDEFENDED
from gradveil.recommending.candidates import Candidate
from gradveil.recommending.plan import CHECK_ITERATIONS, RecommendPlan

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

    def images_to_check(self, candidate: Candidate, seconds: float, took: Mapping[str, float], done: int = 0) -> int:
        """On how many images an answer can be checked in so many seconds besides those that are `done`.

        0 where these are too few to say anything.
        """
        unit = candidate.threat.unit
        most = min(self._wanted(candidate), done + int(max(0.0, seconds) / self._each_check(candidate, took)))
        images = most - most % unit
        return images if images >= min(FEWEST, self.plan.check) else 0

    def of_check(self, candidate: Candidate, took: Mapping[str, float]) -> float:
        """A check on as many images as there are for it."""
        return self._wanted(candidate) * self._each_check(candidate, took)

    def of_attack(self, number: int, candidate: Candidate, took: Mapping[str, float]) -> float:
        """All attacks of a round, if none of them was done."""
        if number == 0:
            known = [one for one in self.candidates.values() if f"0 attack {one.name}" in took]
            # The quickest of those before it: the first also waited for workers to start.
            return self._first_work(candidate) * min(
                took[f"0 attack {one.name}"] / self._first_work(one) for one in known
            )
        return self._each(candidate, took) * self._new_images(number, candidate) * self.plan.levels[number].iterations

    def of_trainings(self, number: int, candidate: Candidate, took: Mapping[str, float]) -> float:
        """All trainings of a round."""
        first, level = self.plan.levels[0], self.plan.levels[number]
        bare = took[f"0 train {UNDEFENDED}"] * candidate.slowness
        once = took.get(f"0 train {candidate.name}", bare) / first.epochs
        if number == 0:
            return once * level.epochs
        done = [self.plan.levels[one] for one in range(number) if f"{one} train {candidate.name}" in took]
        new = level.trainings - max((one.trainings for one in done if one.epochs == level.epochs), default=0)
        return once * level.epochs * new / min(self.workers, 2)  # some of them run side by side

    @property
    def can_check(self) -> bool:
        """Whether there are images that no round looks at, and enough of them."""
        return self.available - self.most_images >= min(FEWEST, self.plan.check)

    def _wanted(self, candidate: Candidate) -> int:
        wanted = max(self.plan.check, MESSAGES * candidate.threat.unit) if self.plan.check else 0
        return max(0, min(wanted, self.available - self.most_images))

    def _each_check(self, candidate: Candidate, took: Mapping[str, float]) -> float:
        return self._each(candidate, took) * CHECK_ITERATIONS

    def _each(self, candidate: Candidate, took: Mapping[str, float]) -> float:
        """Seconds of an image and iteration, in the last round that attacked images anew."""
        levels = self.plan.levels
        known = [one for one in range(len(levels)) if f"{one} attack {candidate.name}" in took]
        last = max(one for one in known if self._new_images(one, candidate))
        return took[f"{last} attack {candidate.name}"] / self._new_images(last, candidate) / levels[last].iterations

    def _new_images(self, number: int, candidate: Candidate) -> int:
        """Images of a round without those whose records of the round before are used again."""
        images, levels = self.images(number, candidate), self.plan.levels
        if number == 0 or levels[number].iterations != levels[number - 1].iterations or candidate.threat.unit > 1:
            return images
        return images - self.images(number - 1, candidate)

    def _first_work(self, candidate: Candidate) -> float:
        """The attacks of the first round, in attacks without a defense."""
        attackers = len(candidate.threat.attackers(str(candidate.defense)))
        return self.images(0, candidate) * attackers * candidate.slowness
