"""What the plans of a folder's audits ask for and it does not have."""

from collections.abc import Sequence

from gradveil.audit.plan import AuditPlan
from gradveil.report.run import Run
from gradveil.scenario import Scenario, called

MOST_LINES = 30


def missing(run: Run) -> list[str]:
    """A line for every cell without all of its records, and for every defense without all of its trainings.

    Of the last plan everything is asked for; of earlier ones, which may have been given up, only what was begun.
    """
    if run.plan is None:
        return []
    lines = [*shortened(_unattacked(run, run.plan), "cells"), *shortened(_untrained(run, run.plan), "defenses")]
    if run.plan.trainings == 0 and not run.accuracies:
        lines.append("accuracy: the plan asks for no trainings, so what the defenses cost was not measured")
    return lines


def shortened(lines: Sequence[str], what: str) -> list[str]:
    """At most so many lines, and how many more there are."""
    if len(lines) <= MOST_LINES:
        return list(lines)
    return [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} more {what}"]


def _unattacked(run: Run, last: AuditPlan) -> list[str]:
    there: dict[Scenario, set[int]] = {}
    for record in run.records:
        there.setdefault(record.scenario, set()).add(record.index)
    asked: dict[Scenario, int] = {}
    for plan in reversed(run.plans):
        for scenario in map(plan.scenario, plan.cells):
            if plan == last or scenario in there:
                asked[scenario] = max(plan.images, asked.get(scenario, 0))
    return [
        f"{of.attack_in_words}, {of.attacker} attacker, {called(of.defense)}, {of.stage}: {found} of {images} images"
        for of, images in asked.items()
        if (found := len(there.get(of, ()))) < images
    ]


def _untrained(run: Run, last: AuditPlan) -> list[str]:
    there: dict[str, set[int]] = {}
    for one in run.accuracies:
        there.setdefault(one.defense, set()).add(one.seed)
    asked: dict[str, int] = {}
    for plan in reversed(run.plans):
        for defense in plan.defenses:
            if plan == last or defense in there:
                asked[defense] = max(plan.trainings, asked.get(defense, 0))
    return [
        f"accuracy with {called(defense)}: {found} of {trainings} trainings"
        for defense, trainings in asked.items()
        if (found := len(there.get(defense, ()))) < trainings
    ]
