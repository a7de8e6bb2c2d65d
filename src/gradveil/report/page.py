"""One self-contained HTML page from a run folder."""

import json
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import torch

from gradveil.defenses import DEFENSES
from gradveil.errors import GradveilError
from gradveil.files import write_json, write_text
from gradveil.report.groups import grouped
from gradveil.report.words import decibels, verdicts
from gradveil.scenario import UNDEFENDED
from gradveil.store import read_records
from gradveil.transforms import Policy
from gradveil.version import __version__


@dataclass(frozen=True)
class RunNotes:
    """What a run says of itself besides its records: a title, the commands that repeat it, and remarks for the reader."""

    title: str
    commands: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    search: dict[str, Any] | None = field(default=None)

    def save(self, folder: Path) -> None:
        write_json(
            folder / "run.json",
            {
                "title": self.title,
                "commands": self.commands,
                "remarks": self.remarks,
                "search": self.search,
            },
        )


def write_report(folder: Path) -> Path:
    """Render the records of `folder` into `folder/report.html`; what cannot be read is named on the page."""
    if not folder.is_dir():
        raise GradveilError(f"{folder}: no such run folder; gradveil attack and gradveil demo make one")
    records, problems = read_records(folder)
    if not records:
        more = f" ({problems[0]})" if problems else ""
        raise GradveilError(f"{folder}: holds no readable attack records{more}; gradveil attack makes them")
    notes, note_problems = _read_notes(folder)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gradveil.report"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["decibels"] = decibels
    environment.globals["in_words"] = _in_words
    html = environment.get_template("page.html.j2").render(
        notes=notes,
        groups=[(group, verdicts(group)) for group in grouped(records)],
        problems=problems + note_problems,
        knowledge=_shared_knowledge([record.knowledge for record in records]),
        undefended=UNDEFENDED,
        versions={"gradveil": __version__, "torch": torch.__version__, "Python": platform.python_version()},
        seeds=sorted({record.scenario.seed for record in records}),
    )
    path = folder / "report.html"
    write_text(path, html)
    return path


def _in_words(column: str) -> str:
    """What a defense does; columns of attackers who know it carry that after a comma."""
    return "; ".join(_one_in_words(part.strip()) for part in column.partition(", ")[0].split("|"))


def _one_in_words(defense: str) -> str:
    kind = DEFENSES.get(defense.partition(":")[0])
    if kind is not None:
        return (kind.__doc__ or "").strip().splitlines()[0].rstrip(".")
    try:
        return " — or: ".join(Policy.parse(defense).describe())
    except GradveilError:
        # A record may name an operation that its maker registered and we do not have.
        return "a policy with operations that are not registered here"


def _shared_knowledge(all_knowledge: list[dict[str, str]]) -> dict[str, str]:
    merged: dict[str, list[str]] = {}
    for knowledge in all_knowledge:
        for name, value in knowledge.items():
            if value not in merged.setdefault(name, []):
                merged[name].append(value)
    return {name: "; ".join(values) for name, values in merged.items()}


def _checked_search(raw: Any) -> dict[str, Any] | None:
    """A search summary with everything the page shows of it; the file may come from anyone."""
    if raw is None:
        return None
    scores = [found[kind] for found in raw["policies"] for kind in ("privacy", "accuracy")]
    numbers = [raw["scored"], raw["discarded"], raw["evaluations"], raw["accuracy_threshold"], raw["confidence"]]
    lists = [raw["contenders"], *(found["not_told_apart_from"] for found in raw["policies"])]
    numbers += [value for score in scores for value in (score["mean"], score["n"], score["se"] or 0.0)]
    if not all(isinstance(number, int | float) for number in numbers) or not all(
        isinstance(one, list) for one in lists
    ):
        raise TypeError("its search summary holds something else than numbers")
    return {**raw, "hybrid": str(raw["hybrid"])}


def _read_notes(folder: Path) -> tuple[RunNotes, list[str]]:
    path = folder / "run.json"
    plain = RunNotes(title=f"Run {folder.name}", commands=(f"gradveil report {folder}",))
    if not path.is_file():
        return plain, []
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return RunNotes(
            title=str(raw["title"]),
            commands=tuple(str(command) for command in raw["commands"]),
            remarks=tuple(str(remark) for remark in raw["remarks"]),
            search=_checked_search(raw["search"]),
        ), []
    except (ValueError, KeyError, TypeError) as error:
        return plain, [f"{path}: unreadable ({error})"]
