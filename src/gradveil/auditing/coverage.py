"""What the plans of a folder's audits ask for and it does not have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gradveil.auditing.folder import RunFolder
from gradveil.auditing.plan import AuditSettings
from gradveil.leakage.scenario import ScenarioKey, defense_title

MOST_LINES = 30
T = TypeVar("T")


def missing_parts(run: RunFolder) -> list[str]:
    """A line for every cell without all of its records, and for every defense without all of its trainings.

    Of the last plan everything is asked for; of earlier ones, which may have been given up, only what was begun.
    """
    if run.plan is None:
        return []
    lines = [*_shorten(_missing_attacks(run), "cells"), *_shorten(_missing_trainings(run), "defenses")]
    if run.plan.trainings == 0 and not run.accuracies:
        lines.append("accuracy: the plan asks for no trainings, so what the defenses cost was not measured")
    return lines


def _shorten(lines: Sequence[str], what: str) -> list[str]:
    """At most so many lines, and how many more there are."""
    if len(lines) <= MOST_LINES:
        return list(lines)
    return [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} more {what}"]


def _missing_attacks(run: RunFolder) -> list[str]:
    there: dict[ScenarioKey, set[int]] = {}
    for record in run.records:
        # A plan does not say whether attacks share loops.
        there.setdefault(replace(record.scenario, together=None), set()).add(record.index)
    lacking = _shortfalls(run, there, lambda plan: plan.scenario_keys(run.choices))
    return [
        f"{of.attack_in_words}, {of.attacker} attacker, {defense_title(of.defense)}, {run.situations(of)}: "
        f"{found} of {images} images"
        for of, found, images in lacking
    ]


def _missing_trainings(run: RunFolder) -> list[str]:
    there: dict[str, set[int]] = {}
    for one in run.accuracies:
        there.setdefault(one.defense, set()).add(one.seed)
    lacking = _shortfalls(run, there, lambda plan: dict.fromkeys(plan.defenses, plan.trainings))
    return [
        f"accuracy with {defense_title(defense)}: {found} of {trainings} trainings"
        for defense, found, trainings in lacking
    ]


def _shortfalls(
    run: RunFolder, there: Mapping[T, set[int]], wants: Callable[[AuditSettings], Mapping[T, int]]
) -> list[tuple[T, int, int]]:
    """What plans want so many of and fewer are there: what, how many are there, how many are wanted."""
    asked: dict[T, int] = {}
    for plan in reversed(run.plans):
        for one, count in wants(plan).items():
            if plan == run.plan or one in there:
                asked[one] = max(count, asked.get(one, 0))
    found = {one: len(there.get(one, ())) for one in asked}
    return [(one, found[one], count) for one, count in asked.items() if found[one] < count]
