"""Where a curious server, or a curious participant, looks."""

from collections.abc import Collection
from dataclasses import dataclass

from gradveil.errors import GradveilError


@dataclass(frozen=True)
class Curiosity:
    """Record updates in `rounds` (0 is the first) of `victims` participants: `participant` and those after it that answer.

    `sums` are numbers of participants of whom only the mean is recorded. 1 is a participant's own update; more is what secure
    aggregation leaves to see. Of each size there are `victims` too. Nobody is in two of the same size.
    """

    rounds: tuple[int, ...] = (0,)
    participant: int = 0
    sums: tuple[int, ...] = (1,)
    victims: int = 1

    def __post_init__(self) -> None:
        if not self.rounds or not self.sums or min(*self.rounds, self.participant, *self.sums, self.victims) < 0:
            raise GradveilError(f"a curious server needs rounds and sums, and all numbers from 0 on, got {self}")
        if 0 in (*self.sums, self.victims):
            raise GradveilError("a curious server needs sums and victims from 1 on, got 0")

    def check(self, *, participants: int, per_round: int, rounds: int) -> None:
        """Refuse rounds, participants and sums that never come."""
        if max(self.rounds) >= rounds:
            raise GradveilError(f"round {max(self.rounds)} cannot be recorded: there are rounds 0 to {rounds - 1}")
        if self.participant >= participants:
            raise GradveilError(f"participant {self.participant} cannot be recorded: {participants} participate")
        if max(self.victims, *self.sums) > per_round:
            raise GradveilError(
                f"{self.victims} victims and sums of {max(self.sums)} cannot be recorded: {per_round} take part in a round"
            )

    def groups(self, answered: Collection[int]) -> list[tuple[int, ...]]:
        """The participants behind each recording of a round, out of those who answered; a sum of too few is left out."""
        ordered = sorted(answered, key=lambda one: (one < self.participant, one))
        return [
            tuple(sorted(ordered[at : at + size]))
            for size in sorted(set(self.sums))
            for at in range(0, self.victims * size, size)
            if at + size <= len(ordered)
        ]
