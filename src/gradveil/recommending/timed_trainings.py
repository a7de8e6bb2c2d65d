"""The trainings of the rounds, as far as there is time for them."""

from collections.abc import Callable, Iterable, Sequence

from gradveil.auditing.accuracy import Accuracy
from gradveil.errors import GradveilError
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.recommending.costs import Costs
from gradveil.recommending.rounds import side_by_side
from gradveil.recommending.timekeeping import Timekeeper
from gradveil.recommending.trainings import ShortTrainings

# The first round ends when this part of the budget is used.
FIRST_TRAININGS = 0.4


class TimedTrainings:
    """Short trainings whose times are kept; `untrainable` is what could not be trained, and why."""

    def __init__(self, trainings: ShortTrainings, costs: Costs, time: Timekeeper, say: Callable[[str], None]) -> None:
        self._trainings, self._costs, self._time, self._say = trainings, costs, time, say
        self.untrainable: dict[str, str] = {}

    def trainable(self, names: Iterable[str]) -> list[str]:
        """Those of the names that a training says something of, besides no defense."""
        left_out = (UNDEFENDED, *self.untrainable)
        return [name for name in names if not self._costs.candidates[name].is_deployment and name not in left_out]

    def run_first(self, wanted: Sequence[str]) -> list[Accuracy]:
        """Train with no defense, then with the others in their order, as many at a time as there are workers, as time allows."""
        found = self.run(0, [UNDEFENDED])
        # What an earlier session has trained counts, whatever was at work beside it.
        done = [name for name in wanted if f"0 train {name}" in self._time.took]
        found += self.run(0, done) if done else []
        wanted = [name for name in wanted if name not in done]
        seconds = {name: self._costs.of_trainings(0, self._costs.candidates[name], self._time.took) for name in wanted}
        while some := side_by_side(wanted, seconds, self._time.left(FIRST_TRAININGS), self._costs.workers):
            found += self.run(0, some)
            wanted = [name for name in wanted if name not in some]
        return found

    def run(self, number: int, names: Sequence[str]) -> list[Accuracy]:
        """The trainings of a round with each of the defenses; what cannot be trained is said, and left out."""
        level = self._trainings.plan.levels[number]
        try:
            with self._time.timing(
                *(f"{number} train {name}" for name in names), expected=self._expected(number, names)
            ):
                return self._trainings.run(level, [self._costs.candidates[name].defense for name in names])
        except GradveilError as error:
            if UNDEFENDED in names and len(names) == 1:
                raise
            if len(names) > 1:  # one of them cannot be trained; the others can
                return [one for name in names for one in self.run(number, [name])]
            self._say(f"{names[0]} cannot be trained: {error}")
            self.untrainable[names[0]] = str(error)
            return []

    def _expected(self, number: int, names: Sequence[str]) -> float:
        """Seconds of the slowest of them, side by side; 0 before any training was timed."""
        if f"0 train {UNDEFENDED}" not in self._time.took:
            return 0.0
        return max(self._costs.of_trainings(number, self._costs.candidates[name], self._time.took) for name in names)
