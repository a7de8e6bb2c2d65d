"""Who goes on to the next round."""

from collections.abc import Sequence

from gradveil.auditing.power import SIGNIFICANT
from gradveil.auditing.verdicts import CANNOT_TELL, FAILED, LEAKS
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.recommending.front import pareto_front, surely_beaten
from gradveil.recommending.recommendation import Figures

# Of those that leak, so many go on: what they leave is the answer where nothing holds.
LEAKING = 3
# By then attacks are as long as they get; a race in which everything leaks ends there.
LONG_ENOUGH = 3


def survivors(figures: Sequence[Figures], number: int) -> list[str]:
    """Who may still win, the most promising first: whoever is not surely broken or beaten, then the best of those that leak.

    Nobody where everything is decided.
    """
    rivals = [one for one in figures if one.name != UNDEFENDED]
    latest = max((one.round for one in rivals), default=0)
    rivals = [one for one in rivals if one.round == latest]
    unbeaten = [one for one in rivals if not any(surely_beaten(one.intervals, other.intervals) for other in rivals)]
    broken = {one.name for one in unbeaten if surely_broken(one, len(rivals))}
    whole = sorted((one for one in unbeaten if one.name not in broken), key=_cheapness)
    leaky = {one.name: one for one in unbeaten if one.name in broken}
    front = pareto_front({name: (one.exposure, 1.0 if one.loss is None else one.loss) for name, one in leaky.items()})
    leaking = front[:LEAKING]  # in the order of their exposure
    undecided = any(one.level in (CANNOT_TELL, FAILED, LEAKS) for one in whole)
    if not undecided and number >= LONG_ENOUGH:
        return []
    return [one.name for one in whole] + leaking


def surely_broken(one: Figures, rivals: int) -> bool:
    """Whether it leaks beyond doubt: of twenty that give nothing away one seems to by chance, so more is asked of each."""
    return one.inverted or (one.leaks and one.p < SIGNIFICANT / rivals)


def _cheapness(one: Figures) -> tuple[float, float]:
    return (1.0 if one.loss is None else one.loss), one.exposure
