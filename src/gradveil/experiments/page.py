"""One record as a page of Markdown: verdicts, our numbers beside the published ones, plots, and how to run it again."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from gradveil.experiments.cells import found_in
from gradveil.experiments.experiment import Experiment
from gradveil.experiments.figures import final_accuracy, write_figures
from gradveil.experiments.published import SHORT, WITH_TABLES, PublishedRow, published_beside
from gradveil.experiments.records import PUBLISHED_SCORE, Attacked, Result
from gradveil.experiments.score_rules import FIGURES, correlations_of, ranked_operations
from gradveil.experiments.scoring import UNTRANSFORMED
from gradveil.io.files import write_text
from gradveil.leakage.scenario import defense_title
from gradveil.report.formats import NOTHING, format_first, format_mean, format_number, format_rank
from gradveil.report.markdown import markdown_table, markdown_text
from gradveil.scores import Estimate

SHOWN_OPERATIONS = 10
# Figures of a record whose names leave something open.
MEASURED = {"attack_seconds": "seconds of an attack on one image, as published"}


def write_experiment_page(experiment: Experiment, result: Result, folder: Path) -> list[Path]:
    """`folder/NAME.md` and its plots, from the record alone: the same record gives the same bytes."""
    plots = write_figures(experiment, result, folder)
    lines = [f"# {experiment.title}", "", *section(experiment, result, plots, link=lambda path: path.name)]
    page = folder / f"{experiment.name}.md"
    write_text(page, "\n".join(lines).rstrip() + "\n")
    return [page, *plots]


def section(experiment: Experiment, result: Result, plots: Sequence[Path], *, link: Callable[[Path], str]) -> list[str]:
    """What a page says of one experiment."""
    scale = (
        f" At the scale `{result.scale}`: {experiment.differs}" if result.scale == "cpu" and experiment.differs else ""
    )
    lines = [f"Repeats: {markdown_text(experiment.published)}.{scale}", ""]
    if experiment.claims:
        lines += [*markdown_table(verdict_rows(experiment, result)), ""]
    lines += [*_tables(result), *_scores(result), *_trainings(result), *_figures(result)]
    lines += [f"![{markdown_text(experiment.title)}]({link(path)})\n" for path in plots]
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    lines += ["```console", f"$ {result.command}", "```", ""]
    lines += [f"Seed {result.seed}, on {result.device}, {versions}.", ""]
    return lines


def verdict_rows(experiment: Experiment, result: Result) -> list[dict[str, str]]:
    """A row per claim."""
    found = [(claim, claim.decide(result)) for claim in experiment.claims]
    return [
        {"claim": f"{claim.key}: {claim.text}", "verdict": verdict.level, "why": verdict.why, "rule": claim.rule.text}
        for claim, verdict in found
    ]


def _tables(result: Result) -> list[str]:
    """A table per data, network and stage, ours beside both papers' numbers."""
    lines: list[str] = []
    groups: dict[tuple[str, str, str], list[Attacked]] = {}
    for one in result.found.attacked:
        groups.setdefault(one.setting, []).append(one)
    for (dataset, model, stage), cells in groups.items():
        if len(cells) > SHOWN_OPERATIONS * 4:  # a hundred policies are a plot, not a table
            continue
        lines += [f"**{markdown_text(f'{model} on {dataset}, {stage}')}**", ""]
        lines += [*markdown_table(_known_columns([_row(result, one) for one in cells])), ""]
    return lines


def _known_columns(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The rows without the columns that say nothing anywhere."""
    known = [name for name in rows[0] if any(row[name] != NOTHING for row in rows)]
    return [{name: row[name] for name in known} for row in rows]


def _row(result: Result, one: Attacked) -> dict[str, str]:
    beside = published_beside(one.published, one.row, one.attack.partition(",")[0])
    trained = [
        own
        for own in result.found.trained
        if (own.dataset, own.model, own.row) == (one.dataset, one.model, one.row) and one.stage.startswith("trained")
    ]
    threat = ", ".join(part for part in one.threat.split(", ") if part and part != "test images")
    row = {
        "defense": defense_title(one.row),
        "attack": ", ".join(part for part in (one.attack, threat) if part),
        "attacker": one.attacker,
        "n": str(one.n),
        "PSNR to shared, dB (95%)": format_mean(one.psnr),
    }
    row |= {f"{SHORT[source]}": _psnr(beside.get(source)) for source in WITH_TABLES} if one.published else {}
    row |= {
        "found": found_in(one, result.tried),
        "others": str(max(one.decoys, default=0)),
        "ranks above (95%)": format_rank(one.identified),
        "first": format_first(one.identified),
        "placebo": NOTHING if one.identified_placebo is None else f"{one.identified_placebo.percentile:.0%}",
        "detail, dB (95%)": format_mean(one.details),
        "diverged": str(one.diverged) if one.diverged else NOTHING,
        "accuracy, %": format_number(100 * final_accuracy(trained)) if trained else NOTHING,
    }
    row |= {f"{SHORT[source]}, %": _accuracy(beside.get(source)) for source in WITH_TABLES} if one.published else {}
    return row


def _psnr(one: PublishedRow | None) -> str:
    if one is None or one.psnr is None:
        return NOTHING
    return format_number(one.psnr, 2) + ("" if one.psnr_sd is None else f" ± {one.psnr_sd:.2f}")


def _accuracy(one: PublishedRow | None) -> str:
    return NOTHING if one is None or one.accuracy is None else format_number(one.accuracy, 2)


def _scores(result: Result) -> list[str]:
    """The most private operations or policies, and what scores say of attacks."""
    lines: list[str] = []
    scored = [one for one in ranked_operations(result) if one.values]
    baseline = [one for one in result.found.scored if one.policy == UNTRANSFORMED and one.score == PUBLISHED_SCORE]
    if scored:
        shown = [*baseline, *scored[:SHOWN_OPERATIONS]]
        rows = [
            {
                "policy": "untransformed" if one in baseline else one.policy,
                "S_pri ± se (n)": str(Estimate(one.values, 0)),
            }
            for one in shown
        ]
        many = f"Of {len(scored)} policies that differ, the {len(scored[:SHOWN_OPERATIONS])} with the lowest S_pri:"
        lines += [many, "", *markdown_table(rows), ""]
    rows = []
    for score, figure in product(dict.fromkeys(one.score for one in result.found.scored), FIGURES):
        found = correlations_of(result, figure, score)
        if found is not None:
            both = " and ".join(NOTHING if one is None else f"{one:.2f}" for one in found.reliabilities)
            rows.append(
                {
                    "score": "S_pri" if score == PUBLISHED_SCORE else score,
                    "with": FIGURES[figure],
                    "policies": str(found.pearson.n),
                    "Pearson (95%)": found.pearson.words,
                    "Spearman (95%)": found.spearman.words,
                    "Pearson without noise (95%)": NOTHING if found.corrected is None else found.corrected.words,
                    "reliability of both": both,
                }
            )
    return lines + ([*markdown_table(rows), ""] if rows else [])


def _trainings(result: Result) -> list[str]:
    """Accuracies, where nothing was attacked."""
    if result.found.attacked or not result.found.trained:
        return []
    groups: dict[tuple[str, str, str], list[float]] = {}
    for one in result.found.trained:
        groups.setdefault((one.dataset, one.model, one.row), []).append(one.accuracy)
    rows = [
        {
            "data": dataset,
            "network": model,
            "defense": defense_title(row),
            "trainings": str(len(values)),
            "accuracy, %": format_number(100 * sum(values) / len(values)),
            "lowest to highest, %": f"{format_number(100 * min(values))} to {format_number(100 * max(values))}",
        }
        for (dataset, model, row), values in groups.items()
    ]
    return [*markdown_table(rows), ""]


def _figures(result: Result) -> list[str]:
    """Numbers with a name."""
    figures = result.found.figures or {}
    rows = [
        {"measured": MEASURED.get(name, name.replace("_", " ")), "value": f"{value:,.4g}"}
        for name, value in sorted(figures.items())
    ]
    return [*markdown_table(rows), ""] if rows else []
