"""One verdict per defense, over all stages."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradveil.auditing.verdicts import CANNOT_TELL, FAILED, LEAKS, PROTECTS, Grade, Level, Tone, Verdict

# The worst decides.
_WORST_FIRST: tuple[Level, ...] = (LEAKS, CANNOT_TELL, PROTECTS)


@dataclass(frozen=True)
class OverallVerdict:
    """The worst verdict on a defense of a model over all stages that test it; `stage` is where it comes from.

    `stages` went into it. `silent` did not: there the attack fails even without a defense.
    """

    dataset: str
    model: str
    defense: str
    level: Level
    tone: Tone
    grade: Grade
    stage: str
    text: str
    stages: tuple[str, ...]
    silent: tuple[str, ...]


def overall_verdicts(verdicts: Sequence[Verdict]) -> list[OverallVerdict]:
    """The overall verdicts in the order in which the defenses come."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.dataset, verdict.model, verdict.defense), []).append(verdict)
    return [_worst(group) for group in groups.values()]


def _worst(group: Sequence[Verdict]) -> OverallVerdict:
    tested = [one for one in group if one.level != FAILED]
    stages, silent = tuple(one.stage for one in tested), tuple(one.stage for one in group if one.level == FAILED)
    if tested:
        worst = min(tested, key=lambda one: (_WORST_FIRST.index(one.level), -one.percentile))
        where = _all_of(stages) if len(stages) == 1 else f"Worst of {len(stages)} cases ({worst.stage})"
        unsaid = (
            f" Where the attacks fail even without a defense it was not tested: {', '.join(silent)}." if silent else ""
        )
        text = f"{where}: {worst.text}{unsaid}"
    else:
        worst = group[0]
        text = f"{_all_of(silent)}: {worst.text}"
    return OverallVerdict(
        worst.dataset,
        worst.model,
        worst.defense,
        worst.level,
        worst.tone,
        worst.grade,
        worst.stage,
        text,
        stages,
        silent,
    )


def _all_of(stages: Sequence[str]) -> str:
    said = ", ".join(stages)
    return said[:1].upper() + said[1:]
