"""A run as Markdown and CSV, for papers and spreadsheets."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from gradveil.auditing.findings import AttackFindings, Findings
from gradveil.auditing.study import Judgment, Study
from gradveil.io.files import write_text
from gradveil.leakage.scenario import defense_title
from gradveil.report.page import format_mean, format_number
from gradveil.report.wording import short_verdict

Cell = str | float | int | bool | None


def write_markdown(study: Study, folder: Path) -> Path:
    """`folder/report.md`: the summary and the tables of the page."""
    run = study.run
    lines = [f"# {_text(run.notes.title)}", "", study.headline, ""]
    lines += [line for remark in run.notes.remarks for line in (_text(remark), "")]
    for (dataset, model), summaries in study.summaries.items():
        lines += [f"## {_text(model)} on {_text(dataset)}", ""]
        rows = [
            {
                "defense": defense_title(one.overall.defense),
                "verdict": short_verdict(one.overall),
                "why": one.overall.text,
                "accuracy": one.loss.text if one.loss else "not measured",
            }
            for one in summaries
        ]
        lines += [*_table(rows), ""]
    for (dataset, model, stage), judgments in study.stages.items():
        lines += [
            f"### {_text(str(stage))} {_text(model)} on {_text(dataset)}: gain in dB, worst case over attacks",
            "",
        ]
        lines += [*_table([_row(one) for one in judgments]), ""]
        lines += [*(f"- {_text(said)}" for one in judgments for said in one.statements), ""]
    for vulnerable in study.vulnerabilities:
        lines += [f"### Which images are vulnerable: {_text(str(vulnerable.stage))} {_text(vulnerable.model)}", ""]
        lines += [_text(vulnerable.text), "", *(f"- {_text(note)}" for note in vulnerable.notes), ""]
    trouble = [*run.problems, *study.missing, *run.absent]
    if trouble:
        lines += ["## What is missing", "", *(f"- {_text(line)}" for line in trouble), ""]
    if run.notes.commands:
        lines += ["## Run it again", "", *(f"    {' '.join(command.split())}" for command in run.notes.commands), ""]
    path = folder / "report.md"
    write_text(path, "\n".join(lines).rstrip() + "\n")
    return path


def write_csv(study: Study, folder: Path) -> list[Path]:
    """`findings.csv`, a row per defense and stage and one per attack of it, and `images.csv`, a row per image and attack."""
    findings: list[dict[str, Cell]] = []
    images: list[dict[str, Cell]] = []
    for (dataset, model, stage), judgments in study.stages.items():
        for one in judgments:
            cell: dict[str, Cell] = {
                "dataset": dataset,
                "model": model,
                "stage": str(stage),
                "defense": one.findings.defense,
            }
            findings.append(cell | _figures("worst case", "", one.findings) | _claims(study, one))
            worst = {(image.index, image.attack, image.attacker) for image in one.findings.images}
            for attack in one.findings.attacks:
                findings.append(cell | _figures(attack.attack, attack.attacker, attack))
                images += [
                    cell | asdict(image) | {"worst_case": (image.index, image.attack, image.attacker) in worst}
                    for image in attack.images
                ]
    paths = [folder / "findings.csv", folder / "images.csv"]
    for path, rows in zip(paths, (findings, images), strict=True):
        write_text(path, _csv(rows))
    return paths


def _row(one: Judgment) -> dict[str, str]:
    spreads = one.findings.spreads
    return {
        "defense": defense_title(one.findings.defense),
        "verdict": short_verdict(one.verdict),
        "n": str(one.findings.n),
        "gain (95%)": format_mean(spreads.gain),
        "sd": format_number(spreads.gain.sd),
        "median": format_number(spreads.gain.quantiles["0.5"]),
        "largest": format_number(spreads.gain.quantiles["1"]),
        "PSNR shared": format_number(spreads.psnr_transformed.mean),
        "PSNR original": format_number(spreads.psnr_original.mean),
        "SSIM original": format_number(spreads.ssim_original.mean, 2),
    }


def _figures(attack: str, attacker: str, found: Findings | AttackFindings) -> dict[str, Cell]:
    gain = found.spreads.gain
    figures: dict[str, Cell] = {"attack": attack, "attacker": attacker, "n": gain.n, "diverged": found.diverged}
    figures |= {"gain_mean": gain.mean, "gain_sd": gain.sd, "gain_low": gain.low, "gain_high": gain.high}
    figures |= {f"gain_q{fraction}": value for fraction, value in gain.quantiles.items()}
    for name in ("psnr_transformed", "psnr_original", "ssim_transformed", "ssim_original"):
        spread = getattr(found.spreads, name)
        figures |= {f"{name}_mean": spread.mean, f"{name}_sd": spread.sd}
    named = found.identified
    if named is not None:
        figures |= {"identified": named.identified.count, "candidates": named.candidates, "identification_p": named.p}
    return figures


def _claims(study: Study, one: Judgment) -> dict[str, Cell]:
    """What only the worst case has: the verdict, delta for every eps, the accuracy."""
    claims: dict[str, Cell] = {"verdict": one.verdict.level, "text": one.verdict.text}
    for success in one.findings.success:
        claims |= {f"reached_{success.eps:g}dB": success.reached.count, f"delta_{success.eps:g}dB": success.delta}
    loss = study.loss(one.findings.dataset, one.findings.model, one.findings.defense)
    if loss is not None:
        claims |= {"accuracy": loss.accuracy, "accuracy_loss": loss.loss, "loss_low": loss.low, "loss_high": loss.high}
    return claims


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
        return round(value, 6)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    body = [f"| {' | '.join(_text(cell) for cell in row.values())} |" for row in rows]
    return [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}", *body]


def _text(value: str) -> str:
    """One line without anything that Markdown or HTML would take for more than text."""
    line = " ".join(value.split()).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{letter}" if letter in "\\|`*_[]" else letter for letter in line)
