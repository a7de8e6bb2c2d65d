"""What an audit prints: answers, a row per defense, how much the attacks were given, what to do next; before, what it takes."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from gradveil.cli.output import emit, percentile_and_firsts, print_shaded, print_table, say, shaded
from gradveil.progress import duration

if TYPE_CHECKING:
    from rich.text import Text

    from gradveil.auditing.estimate import AuditEstimate
    from gradveil.auditing.study import Study
    from gradveil.auditing.verdicts import Verdict


def print_verdicts(study: "Study") -> None:
    """Print the three answers, and the verdict on every defense; random policies by themselves in one row, their mean."""
    from gradveil.auditing.answers import answers_of
    from gradveil.auditing.averages import group_of
    from gradveil.auditing.comparisons import is_control
    from gradveil.auditing.steps import defenses_in
    from gradveil.report.board import shade_of
    from gradveil.report.wording import WORD

    for (dataset, model), summaries in study.summaries.items():
        for answer in answers_of(study, dataset, model):
            figure = f" {answer.figure} ({answer.interval})." if answer.figure else ""
            print_shaded(f"{answer.question} ", answer.short, f"{figure} {answer.text}", shade=answer.shade)
        rows: list[list[str | Text]] = [
            [
                f"{one.overall.defense}{' (control)' if is_control(one.overall.defense) else ''}",
                shaded(f"{WORD[one.overall.level]} ({one.overall.grade})", shade_of(one.overall)),
                *percentile_and_firsts(one.worst.identified),
                f"{one.worst.detail.mean:+.1f}",
                *_accuracy(study, dataset, model, one.overall.defense),
            ]
            for one in summaries
            if group_of(one.overall.defense) is None
        ]
        rows += [
            [
                one.name,
                f"mean of {one.policies}, {one.stage}",
                "-" if one.worst.percentile is None else f"{one.worst.percentile[0]:.0%}",
                "-",
                f"{one.worst.detail.mean:+.1f}",
                *_accuracy(study, dataset, model, one.name),
            ]
            for one in study.random_means
            if (one.dataset, one.model) == (dataset, model)
        ]
        columns = ["defense", "verdict (grade)", "ranks above", "first", "detail", "accuracy", "lost"]
        if not study.accuracies:  # 80 characters are few
            columns, rows = columns[:-2], [row[:-2] for row in rows]
        print_table(f"{model} on {dataset}; detail in dB", columns, rows)
        if (why := study.no_cost(dataset, model)) is not None:
            typer.echo(f"no cost in accuracy is computed: {why}")
        for one in summaries:
            typer.echo(f"{one.overall.defense}: {one.overall.text}")
        steps = study.steps.get((dataset, model))
        if steps:
            print_table(
                "from the worst case to what is deployed: the right image ranks above",
                ["threat", *defenses_in(steps)],
                [
                    [step.threat, *(_step(step.verdicts.get(defense)) for defense in defenses_in(steps))]
                    for step in steps
                ],
            )


def print_efforts(study: "Study") -> None:
    """Print how much the attacks were given, and what to try where they failed."""
    for said in (*study.efforts, *(one.words for one in study.run.choices)):
        typer.echo(said)
    failed: dict[tuple[str, str], list[str]] = {}  # one command may be for several
    for (_, model, stage), found in study.next_tries.items():
        failed.setdefault(found, []).append(f"{model}, {stage}")
    for (words, how), where in failed.items():
        typer.echo(f"\nAttack failed on {'; '.join(where)}. Next to try: {words}:\n    {how}")


def print_next_step(study: "Study") -> None:
    """Print what to do next, and the command. Where the attacks failed, `print_efforts` has said it."""
    from gradveil.auditing.next_step import next_step

    step = next_step(study)
    if step is not None and step.command not in {how for _, how in study.next_tries.values()}:
        typer.echo(f"\nNext: {step.text}\n    {step.command}")


def print_left_out(study: "Study") -> None:
    """Say which records of the folder do not count, in one line."""
    if study.run.left_out is not None:
        say(study.run.left_out)


def _accuracy(study: "Study", dataset: str, model: str, defense: str) -> tuple[str, str]:
    """The test accuracy with a defense, or with none, and what of it the defense takes."""
    measured, loss = study.accuracy(dataset, model, defense), study.loss(dataset, model, defense)
    return (
        "-" if measured is None else f"{100 * measured.accuracy:.1f}%",
        "-" if loss is None else f"{100 * loss.loss:+.1f} points",
    )


def _step(verdict: "Verdict | None") -> str:
    if verdict is None or verdict.identified is None:
        return "-"
    return f"{verdict.percentile:.0%} ({verdict.grade})"


def print_estimate(estimate: "AuditEstimate", *, json: bool) -> None:
    """Print what an audit would take."""
    if json:
        totals = ("device", "memory_mb", "jobs", "iterations", "worker_seconds", "seconds")
        emit(asdict(estimate) | {name: getattr(estimate, name) for name in totals})
        return
    print_table(
        "One attack on one message, estimated from its first iterations",
        ["defense", "attack", "attacker", "times", "iterations", "s/iteration", "one attack"],
        [
            [
                cost.defense,
                cost.attack,
                cost.attacker,
                f"{cost.times:,}",
                f"{cost.iterations:,}",
                f"{cost.seconds_per_iteration:.3g}",
                duration(cost.seconds),
            ]
            for cost in estimate.costs
        ],
    )
    typer.echo(f"jobs: {estimate.jobs:,} attacks, {estimate.iterations:,} iterations")
    if estimate.steps:
        typer.echo(
            f"trainings: {estimate.trainings}, with the stages {estimate.steps:,} steps of {estimate.seconds_per_step:.3g} s"
        )
    typer.echo(f"device: {estimate.device}, one thread per worker")
    typer.echo(f"memory: {estimate.memory_mb:,.0f} MB per worker")
    typer.echo(
        f"time: {duration(estimate.worker_seconds)} with one worker, {duration(estimate.seconds)} with {estimate.workers}; "
        "less where attacks end early"
    )
