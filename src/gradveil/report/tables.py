"""A run as Markdown and CSV, for papers and spreadsheets."""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gradveil.auditing.answers import answers_of
from gradveil.auditing.averages import RandomMean
from gradveil.auditing.findings import AttackFindings
from gradveil.auditing.study import DefenseSummary, Judgment, Study
from gradveil.io.files import write_text
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import defense_title
from gradveil.report.formats import NOTHING, format_first, format_mean, format_number, format_rank, labels_read
from gradveil.report.markdown import markdown_table, markdown_text
from gradveil.report.wording import DEFINITIONS, OTHER_THREAT, describe_power_of, short_verdict

Cell = str | float | int | bool | None


def write_markdown(study: Study, folder: Path) -> Path:
    """`folder/report.md`: the summary and the tables of the page."""
    run = study.run
    lines = [f"# {markdown_text(run.notes.title)}", "", study.headline, ""]
    lines += [line for remark in run.notes.remarks for line in (markdown_text(remark), "")]
    for (dataset, model), summaries in study.summaries.items():
        lines += [f"## {markdown_text(model)} on {markdown_text(dataset)}", ""]
        for answer in answers_of(study, dataset, model):
            figure = f" {answer.figure} ({answer.interval})." if answer.figure else ""
            lines.append(f"- {markdown_text(f'{answer.question} {answer.short}{figure} {answer.text}')}")
        lines.append("")
        means = [one for one in study.random_means if (one.dataset, one.model) == (dataset, model)]
        rows = [_summary_row(one) for one in summaries] + [_random_row(study, one) for one in means]
        lines += [*markdown_table(rows), ""]
        lines += [
            f"- {markdown_text(f'{defense_title(one.overall.defense)}: {one.overall.text}')}" for one in summaries
        ]
        placebo = study.placebos[dataset, model]
        lines += [
            f"- {markdown_text(f'{stage}: attack failed; next to try: {how or words}')}"
            for (name, network, stage), (words, how) in study.next_tries.items()
            if (name, network) == (dataset, model)
        ]
        lines += ["", "" if placebo is None else f"Placebo: {placebo.text}", ""]
    for (dataset, model, stage), judgments in study.stages.items():
        lines += [
            f"### {markdown_text(str(stage))} {markdown_text(model)} on {markdown_text(dataset)}, attacker by attacker",
            "",
        ]
        lines += [
            *markdown_table([_attack_row(one, attack) for one in judgments for attack in one.findings.attacks]),
            "",
        ]
        lines += [*(f"- {markdown_text(said)}" for one in judgments for said in one.statements), ""]
    for vulnerable in study.vulnerabilities:
        where = markdown_text(f"{vulnerable.stage} {vulnerable.model}")
        lines += [f"### Which images are vulnerable: {where}", ""]
        lines += [markdown_text(vulnerable.text), "", *(f"- {markdown_text(note)}" for note in vulnerable.notes), ""]
    trouble = [*run.problems, *study.missing, *run.absent]
    if trouble:
        lines += ["## What is missing", "", *(f"- {markdown_text(line)}" for line in trouble), ""]
    words = {
        **({"Iterations": "; ".join(study.efforts)} if study.efforts else {}),
        **({"Settings tried first": "; ".join(one.words for one in run.choices)} if run.choices else {}),
        "What this could have found": " ".join(describe_power_of(study)),
        "Not measured": OTHER_THREAT,
        **DEFINITIONS,
    }
    lines += [
        "## How this was measured",
        "",
        *(f"- {markdown_text(f'{word}: {said}')}" for word, said in words.items()),
        "",
    ]
    if run.notes.commands:
        lines += ["## Run it again", "", *(f"    {' '.join(command.split())}" for command in run.notes.commands), ""]
    path = folder / "report.md"
    write_text(path, "\n".join(lines).rstrip() + "\n")
    return path


def write_csv(study: Study, folder: Path) -> list[Path]:
    """`findings.csv`, a row per attack on every defense and stage, and `images.csv`, a row per record.

    In `findings.csv` the verdict stands in the row of the worst attacker.
    """
    findings: list[dict[str, Cell]] = []
    worst: set[tuple[object, ...]] = set()
    for (dataset, model, stage), judgments in study.stages.items():
        for one in judgments:
            cell = {"dataset": dataset, "model": model, "stage": str(stage), "defense": one.findings.defense}
            worst.add((*cell.values(), *one.findings.worst.key))
            for attack in one.findings.attacks:
                is_worst = attack is one.findings.worst
                findings.append(
                    cell | {"worst": is_worst} | _figures(attack) | (_claims(study, one) if is_worst else {})
                )
    paths = [folder / "findings.csv", folder / "images.csv"]
    images = [_image(one, str(study.run.situations(one.scenario)), worst) for one in study.run.records]
    for path, rows in zip(paths, (findings, images), strict=True):
        write_text(path, _csv(rows))
    return paths


def _summary_row(one: DefenseSummary) -> dict[str, str]:
    found = one.decisive.findings
    return {
        "defense": defense_title(one.overall.defense),
        "verdict": short_verdict(one.overall),
        "grade": one.overall.grade,
        "ranks above (95%)": format_rank(found.identified),
        "first": format_first(found.identified),
        "detail, dB (95%)": format_mean(found.worst.detail),
        "labels read": labels_read(found),
        "accuracy": one.loss.text if one.loss else one.accuracy.words if one.accuracy else "not measured",
    }


def _random_row(study: Study, one: RandomMean) -> dict[str, str]:
    """Random policies by themselves, averaged; each of them has a row of its own, too."""
    worst = one.worst
    loss = study.loss(one.dataset, one.model, one.name)
    above = NOTHING if worst.percentile is None else "{:.0%} ({:.0%} to {:.0%})".format(*worst.percentile)
    return {
        "defense": one.name,
        "verdict": f"mean of {one.policies} policies, {one.stage}",
        "grade": "",
        "ranks above (95%)": above,
        "first": "",
        "detail, dB (95%)": format_mean(worst.detail),
        "labels read": "",
        "accuracy": loss.text if loss else "not measured",
    }


def _attack_row(one: Judgment, attack: AttackFindings) -> dict[str, str]:
    return {
        "defense": defense_title(one.findings.defense),
        "verdict": short_verdict(one.verdict) if attack is one.findings.worst else "",
        "attack": attack.attack,
        "attacker": attack.attacker,
        "n": str(attack.detail.n),
        "ranks above (95%)": format_rank(attack.identified),
        "first": format_first(attack.identified),
        "detail, dB (95%)": format_mean(attack.detail),
        "PSNR": format_number(attack.psnr.mean),
        "SSIM": format_number(attack.ssim.mean, 2),
        "PSNR as published": format_number(attack.published.mean),
        "labels read": labels_read(attack),
        "placebo (95%)": format_rank(attack.placebo),
    }


def _figures(attack: AttackFindings) -> dict[str, Cell]:
    found, placebo, detail = attack.identified, attack.placebo, attack.detail
    figures: dict[str, Cell] = {"attack": attack.attack, "attacker": attack.attacker, "n": detail.n}
    figures["diverged"] = attack.diverged
    if found is not None:
        figures |= {"decoys": found.decoys, "percentile": found.percentile, "percentile_low": found.low}
        figures |= {"percentile_high": found.high, "percentile_p": found.p, "first": found.first.count}
        figures |= {"first_low": found.first.low, "first_high": found.first.high, "first_p": found.first_p}
    figures |= {"detail": detail.mean, "detail_sd": detail.sd, "detail_low": detail.low, "detail_high": detail.high}
    figures |= {f"detail_q{fraction}": value for fraction, value in detail.quantiles.items()}
    spreads = {"psnr": attack.psnr, "ssim": attack.ssim, "detail_ssim": attack.detail_ssim}
    for name, spread in (spreads | {"published_psnr": attack.published}).items():
        figures |= {name: spread.mean, f"{name}_sd": spread.sd}
    figures["labels_read"] = attack.labels_read
    if placebo is not None:
        figures |= {"placebo": placebo.percentile, "placebo_low": placebo.low, "placebo_high": placebo.high}
    return figures


def _claims(study: Study, one: Judgment) -> dict[str, Cell]:
    """What only the worst case has: the verdict, delta for every eps, the accuracy."""
    verdict = one.verdict
    claims: dict[str, Cell] = {"verdict": verdict.level, "grade": verdict.grade, "p": verdict.p}
    claims |= {"needed": verdict.needed, "text": verdict.text}
    for success in one.findings.success:
        claims |= {f"reached_{success.eps:g}dB": success.reached.count, f"delta_{success.eps:g}dB": success.delta}
    if (picked_out := one.findings.picked_out) is not None:
        claims |= {"picked_out": picked_out.count, "delta_picked_out": picked_out.upper}
    of = (one.findings.dataset, one.findings.model, one.findings.defense)
    measured, loss = study.accuracy(*of), study.loss(*of)
    if measured is not None:
        claims["accuracy"] = measured.accuracy
    if loss is not None:
        claims |= {"accuracy_loss": loss.loss, "loss_low": loss.low, "loss_high": loss.high}
    return claims


def _image(record: Record, stage: str, worst: Collection[tuple[object, ...]]) -> dict[str, Cell]:
    of = record.scenario
    cell: dict[str, Cell] = {"dataset": of.dataset, "model": of.model, "stage": stage, "defense": of.defense}
    cell |= {"attack": of.attack_in_words, "attacker": of.attacker}
    ranks: dict[str, Cell] = (
        {"rank": None, "decoys": 0}
        if record.rank is None
        else {"rank": record.rank.rank, "decoys": len(record.rank.decoys)}
    )
    names = (
        "psnr",
        "ssim",
        "mse",
        "guess",
        "guess_psnr",
        "guess_ssim",
        "published_psnr",
        "published_ssim",
        "labels_read",
    )
    return {
        **cell,
        "worst": tuple(cell.values()) in worst,
        "index": record.index,
        "label": record.label,
        "percentile": record.percentile,
        **ranks,
        "placebo": None if record.placebo is None else record.placebo.percentile,
        "detail": record.detail,
        **{name: getattr(record, name) for name in names},
        "iterations": record.iterations,
        "diverged": record.diverged,
    }


def _csv(rows: Sequence[Mapping[str, Cell]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def _cell(value: Cell) -> Cell:
    """Text that a spreadsheet would take for a formula gets an apostrophe: records come from anyone."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
