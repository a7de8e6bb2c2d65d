"""Who talks with whom when there is no server, and how much each listens to the others."""

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from pathlib import Path

import torch

from gradveil.errors import GradveilError
from gradveil.io.files import read_text
from gradveil.naming import unknown
from gradveil.randomness import generator

RING, COMPLETE, RANDOM = "ring", "complete", "random"
MOST_PARTICIPANTS = 1000
LARGEST_FILE = 8 * 2**20
RANDOM_TRIES = 100

_EXAMPLES = ", random:P such as random:0.4, or a file of lines such as 0 1"


@dataclass(frozen=True)
class Topology:
    """A connected graph of `participants`; `edges` are pairs (i, j) with i < j, in order and each once."""

    name: str
    participants: int
    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        _check_count(self.participants)
        if list(self.edges) != sorted(set(self.edges)) or not all(
            0 <= one < other < self.participants for one, other in self.edges
        ):
            raise GradveilError(f"topology {self.name}: its edges are not ordered pairs of participants, each once")
        if alone := _unreachable(self.participants, self.edges):
            raise GradveilError(
                f"topology {self.name} is not connected: nothing leads from participant 0 to {min(alone)}; add edges"
            )

    @cached_property
    def _adjacent(self) -> list[list[int]]:
        return _adjacent(self.participants, self.edges)

    def neighbours(self, one: int) -> tuple[int, ...]:
        """The neighbours of `one`, in order: they get its messages and send it theirs."""
        return tuple(self._adjacent[one])

    def weights(self, one: int, present: Collection[int] | None = None) -> dict[int, Fraction]:
        """The weights that `one` gives to its neighbours and itself: its row of the Metropolis-Hastings matrix, in order.

        W_ij = 1 / (1 + max(d_i, d_j)) for neighbours i and j with d_i and d_j neighbours each. W_ii is what is missing to 1 (Xiao
        and Boyd, 2004). The weight of neighbours who are not `present` goes to `one`. Who is not present keeps all it has. So the
        matrix is symmetric and doubly stochastic, and mixing never changes the mean of what is mixed. How many images somebody
        has does not count: the matrix would not be symmetric.
        """
        there = range(self.participants) if present is None else present
        others = [other for other in self.neighbours(one) if other in there] if one in there else []
        row = {other: Fraction(1, 1 + max(self._degree(one), self._degree(other))) for other in others}
        row[one] = 1 - sum(row.values(), Fraction(0))
        return {number: row[number] for number in sorted(row)}

    @property
    def text(self) -> str:
        """Name and edges in one line, to tell two runs apart."""
        return f"{self.name}: {' '.join(f'{one}-{other}' for one, other in self.edges)}"

    def _degree(self, one: int) -> int:
        return len(self._adjacent[one])


def parse_topology(text: str, participants: int, *, seed: int = 0) -> Topology:
    """The topology from its name: `ring`, `complete`, `random:0.4`, or a file of edges.

    `random:0.4` has every edge with probability 0.4, and is drawn again until it is connected.
    """
    _check_count(participants)
    kind, colon, value = text.partition(":")
    if text == RING:
        return _make_topology(text, participants, ((one, (one + 1) % participants) for one in range(participants)))
    if text == COMPLETE:
        return _make_topology(text, participants, combinations(range(participants), 2))
    if kind == RANDOM:
        return _random_topology(text, participants, value if colon else "", seed)
    path = Path(text)
    if path.is_file():
        return _make_topology(path.name, participants, _read_edges(path, participants))
    if path.suffix or len(path.parts) > 1:
        raise GradveilError(f"{text}: no such file of edges; without one use {RING}, {COMPLETE} or random:0.4")
    raise unknown(text, (RING, COMPLETE, RANDOM), "topology", more=_EXAMPLES)


def _check_count(participants: int) -> None:
    if not 2 <= participants <= MOST_PARTICIPANTS:
        raise GradveilError(f"without a server: expected 2 to {MOST_PARTICIPANTS} participants, got {participants}")


def _make_topology(name: str, participants: int, edges: Iterable[tuple[int, int]]) -> Topology:
    return Topology(name, participants, tuple(sorted({(min(edge), max(edge)) for edge in edges})))


def _adjacent(participants: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(participants)]
    for one, other in edges:
        found[one].append(other)
        found[other].append(one)
    return [sorted(others) for others in found]


def _unreachable(participants: int, edges: Iterable[tuple[int, int]]) -> set[int]:
    """The participants that cannot be reached from participant 0."""
    adjacent = _adjacent(participants, edges)
    reached, waiting = {0}, [0]
    while waiting:
        new = set(adjacent[waiting.pop()]) - reached
        reached |= new
        waiting.extend(new)
    return set(range(participants)) - reached


def _random_topology(text: str, participants: int, value: str, seed: int) -> Topology:
    """A graph of Erdos and Renyi, the first connected one of the seed."""
    try:
        probability = float(value)
    except ValueError:
        probability = 0.0
    if not 0 < probability <= 1:
        raise GradveilError(f"topology: expected a probability above 0 and up to 1 such as random:0.4, got {text!r}")
    pairs = list(combinations(range(participants), 2))
    for attempt in range(RANDOM_TRIES):
        drawn = torch.rand(len(pairs), generator=generator(seed, "topology", attempt), dtype=torch.float64)
        chosen = [pairs[index] for index in (drawn < probability).nonzero().flatten().tolist()]
        if not _unreachable(participants, chosen):
            return _make_topology(text, participants, chosen)
    # Twice where graphs begin to be connected.
    enough = min(1.0, 2 * math.log(participants) / participants)
    raise GradveilError(
        f"topology {text!r}: no connected graph of {participants} participants in {RANDOM_TRIES} draws; "
        f"use random:{enough:.2g}"
    )


def _read_edges(path: Path, participants: int) -> list[tuple[int, int]]:
    """The edges of a file that may come from anyone: two participants a line, `#` begins a comment."""
    try:
        text = read_text(path, largest=LARGEST_FILE)
    except GradveilError as error:
        most = LARGEST_FILE // 2**20
        raise GradveilError(f"{path}: not a readable file of edges of at most {most} MiB ({error})") from error
    edges = []
    for number, line in enumerate(text.splitlines(), 1):
        written = line.partition("#")[0].strip()
        if not written:
            continue
        match = re.fullmatch(r"([0-9]{1,6})\s+([0-9]{1,6})", written)
        if match is None or max(int(match[1]), int(match[2])) >= participants or int(match[1]) == int(match[2]):
            raise GradveilError(
                f"{path}, line {number}: expected two different participants from 0 to {participants - 1}, "
                f"got {written[:40]!r}"
            )
        edges.append((int(match[1]), int(match[2])))
    return edges
