"""Who is attacked and trained in a round, by what fits into the time that is left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradveil.leakage.scenario import UNDEFENDED
from gradveil.recommending.candidates import Candidate
from gradveil.recommending.costs import Costs

# Trainings that run side by side take about as long: none waits for one that takes more than so many times as long.
ALIKE = 2.0


@dataclass(frozen=True)
class Round:
    """The names that a round attacks, and those of them that it trains; who is not trained keeps its earlier figures."""

    attacked: tuple[str, ...]
    trained: tuple[str, ...]


def fill_round(
    number: int, names: Sequence[str], trainable: Sequence[str], costs: Costs, took: Mapping[str, float], left: float
) -> Round:
    """Of `names`, the most promising first, as many as fit into `left` seconds, besides no defense.

    An attack without a training still says more of it. No defense is trained, and its time counted, where one of them is. What
    was done before takes no time.
    """

    def candidate(name: str) -> Candidate:
        return costs.candidates[name]

    def attacking(name: str) -> float:
        return 0.0 if f"{number} attack {name}" in took else costs.of_attack(number, candidate(name), took)

    def training_with(name: str) -> float:
        return 0.0 if f"{number} train {name}" in took else costs.of_trainings(number, candidate(name), took)

    attacked, trained = [UNDEFENDED], list[str]()
    left -= attacking(UNDEFENDED)
    for name in names:
        attack = attacking(name)
        if attack > left:
            continue
        attacked.append(name)
        left -= attack
        if name not in trainable:
            continue
        wanted = [name] if trained else [UNDEFENDED, name]
        training = sum(map(training_with, wanted))
        if training <= left:
            trained += wanted
            left -= training
    return Round(tuple(attacked), tuple(trained))


def side_by_side(names: Sequence[str], seconds: Mapping[str, float], left: float, workers: int) -> list[str]:
    """The most promising that fits into `left`, which is the first of them, and beside it those that take about as long."""
    fitting = [name for name in names if seconds[name] <= left]
    if not fitting:
        return []
    first, *others = fitting
    alike = [one for one in others if 1 / ALIKE <= seconds[one] / seconds[first] <= ALIKE]
    return [first, *sorted(alike, key=lambda one: abs(seconds[one] - seconds[first]))[: workers - 1]]
