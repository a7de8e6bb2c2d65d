"""The clock of a race: what is left of the budget, how long everything took, and what was decided by that."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gradveil.recommending.journal import Journal, write_journal
from gradveil.recommending.rounds import Round

# Rounds end when this part of the budget is used: the rest is for checking the answers. Where one check needs more than the rest,
# rounds leave it up to half of the budget.
ROUNDS, LEAST_ROUNDS = 0.7, 0.5


class Timekeeper:
    """Keeps the journal of `folder`, which is written after every entry; `budget` is in seconds, over all sessions."""

    def __init__(
        self, folder: Path, journal: Journal, budget: float, clock: Callable[[], float], started: float
    ) -> None:
        self._folder, self._journal, self._budget = folder, journal, budget
        # What earlier sessions began and did not end is half done: its time is not that of this session.
        self._interrupted = set(journal.begun) - journal.seconds.keys()
        self._clock, self._started, self._before = clock, started, journal.elapsed

    @property
    def took(self) -> Mapping[str, float]:
        """Seconds by what was done (`1 attack prune:0.9`), each of the first time."""
        return self._journal.seconds

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The candidates that every round took up."""
        return tuple(Round(*one) for one in zip(self._journal.chosen, self._journal.trained, strict=True))

    @property
    def checked(self) -> Mapping[str, int]:
        """On how many other images a candidate is checked."""
        return self._journal.checked

    def done_of(self, name: str) -> int:
        """On how many of these images it was checked already, before there was more time."""
        return self._journal.checked_before.get(name, 0)

    @property
    def minutes(self) -> float:
        """Of all sessions, up to the last entry."""
        return round(self._journal.elapsed / 60, 1)

    def left(self, part: float = 1.0) -> float:
        """Seconds until this part of the budget is used."""
        return part * self._budget - self._spent

    def left_for_rounds(self, check: float) -> float:
        """Seconds until rounds have to end, where a check of an answer takes so many."""
        return min(self.left(ROUNDS), max(self.left(LEAST_ROUNDS), self.left() - check))

    @contextmanager
    def timing(self, *names: str, expected: float = 0.0) -> Iterator[None]:
        """Work that is known by these names; a block that fails took no time.

        What was begun before is done in part: it takes what was `expected`, if that is more.
        """
        again = self._interrupted.intersection(names)
        start = self._clock()
        self._write(self._journal.begin(names))
        try:
            yield
        except BaseException:
            self._interrupted |= set(names)
            raise
        seconds = self._clock() - start
        for name in names:
            self._write(self._journal.took(name, max(seconds, expected) if again else seconds))

    def choose(self, number: int, chosen: Round) -> None:
        """Write down what a round takes up, counted from 0."""
        self._write(self._journal.choose(number, chosen.attacked, chosen.trained))

    def check(self, name: str, images: int) -> None:
        """Write down on how many images a candidate is checked."""
        self._write(self._journal.check_on(name, images))

    def conclude(self, recommendation: dict[str, object]) -> None:
        """Write down what is recommended."""
        write_journal(self._folder, self._journal, recommendation)

    def note(self) -> None:
        """Write down how long everything took so far."""
        self._write(self._journal)

    @property
    def _spent(self) -> float:
        return self._before + self._clock() - self._started

    def _write(self, journal: Journal) -> None:
        self._journal = replace(journal, elapsed=round(self._spent, 1))
        write_journal(self._folder, self._journal)
