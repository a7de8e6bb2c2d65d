"""Where a curious server, or a curious participant, looks."""

from collections.abc import Collection
from dataclasses import dataclass

from gradveil.errors import GradveilError


@dataclass(frozen=True)
class Curiosity:
    """Record updates in `rounds` (0 is the first), of `participant` or whoever comes after it and answers.

    `sums` are the numbers of participants whose mean is all that is seen: 1 is a participant's own update, more is what secure
    aggregation leaves to see.
    """

    rounds: tuple[int, ...] = (0,)
    participant: int = 0
    sums: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if not self.rounds or min(self.rounds) < 0 or not self.sums or min(self.sums) < 1 or self.participant < 0:
            raise GradveilError(
                f"a curious server needs rounds and a participant from 0 on and sums from 1 on, got {self.rounds}, "
                f"{self.participant} and {self.sums}"
            )

    def check(self, *, participants: int, rounds: int) -> None:
        """Refuse to wait for what never comes."""
        if max(self.rounds) >= rounds:
            raise GradveilError(f"round {max(self.rounds)} cannot be recorded: there are rounds 0 to {rounds - 1}")
        if max(self.participant + 1, *self.sums) > participants:
            raise GradveilError(
                f"participant {self.participant} and sums of {max(self.sums)} cannot be recorded: {participants} participate"
            )

    def groups(self, answered: Collection[int]) -> list[tuple[int, ...]]:
        """The participants behind each recording of a round, out of those who answered; a sum of too few is left out."""
        ordered = sorted(answered, key=lambda one: (one < self.participant, one))
        return [tuple(sorted(ordered[:size])) for size in sorted(set(self.sums)) if size <= len(ordered)]
