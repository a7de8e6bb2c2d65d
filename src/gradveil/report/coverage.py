"""What an audit's plan asks for and its folder does not have."""

from collections.abc import Sequence

from gradveil.report.run import Run
from gradveil.scenario import called

MOST_LINES = 30


def missing(run: Run) -> list[str]:
    """A line for every cell without all of its records, and for every training that the plan asks for and is not there."""
    plan = run.plan
    if plan is None:
        return []
    found: dict[tuple[str, str, str, str], set[int]] = {}
    for record in run.records:
        of = record.scenario
        found.setdefault((of.stage, of.defense, of.attack, of.attacker), set()).add(record.index)
    lines = []
    for cell in plan.cells:
        there = len(found.get((plan.in_words(cell.stage), cell.defense, cell.attack, cell.attacker), ()))
        if there < plan.images:
            where = f"{called(cell.defense)}, {plan.in_words(cell.stage)}"
            lines.append(f"{cell.attack}, {cell.attacker} attacker, {where}: {there} of {plan.images} images")
    lines = [*shortened(lines, "cells"), *_untrained(run, plan.trainings, plan.defenses)]
    if plan.trainings == 0 and not run.accuracies:
        lines.append("accuracy: the plan asks for no trainings, so what the defenses cost was not measured")
    return lines


def shortened(lines: Sequence[str], what: str) -> list[str]:
    """At most so many lines, and how many more there are."""
    if len(lines) <= MOST_LINES:
        return list(lines)
    return [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} more {what}"]


def _untrained(run: Run, trainings: int, defenses: Sequence[str]) -> list[str]:
    lines = []
    for defense in defenses:
        there = len({one.seed for one in run.accuracies if one.defense == defense})
        if there < trainings:
            lines.append(f"accuracy with {called(defense)}: {there} of {trainings} trainings")
    return shortened(lines, "defenses")
