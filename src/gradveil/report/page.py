"""One self-contained HTML page from a study."""

import base64
import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jinja2
import torch
from markupsafe import Markup

from gradveil.auditing.answers import Answer, answers_of
from gradveil.auditing.comparisons import is_control
from gradveil.auditing.folder import StoredRecord
from gradveil.auditing.next_step import next_step
from gradveil.auditing.plan import AuditSettings
from gradveil.auditing.steps import defenses_in
from gradveil.auditing.study import Study
from gradveil.auditing.verdicts import GRADES
from gradveil.defenses.words import defense_in_words
from gradveil.io.files import write_text
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED, defense_title
from gradveil.report.board import BARS, ROLES, BoardRow, board_of, shade_of
from gradveil.report.figures import Plot, tradeoff_plot
from gradveil.report.formats import (
    format_first,
    format_mean,
    format_number,
    format_percent,
    format_plan,
    format_points,
    format_rank,
    labels_read,
)
from gradveil.report.groups import place
from gradveil.report.spreading import DefensePanel, PanelGroup, over_stages, over_threats, ranks_of
from gradveil.report.strip import Strip, strip_of
from gradveil.report.traces import trace_plots
from gradveil.report.wall import choices_of, wall_of
from gradveil.report.wording import (
    DEFINITIONS,
    OTHER_THREAT,
    WORD,
    attacker_knowledge,
    describe_defense,
    describe_lineup,
    describe_power_of,
    short_verdict,
)
from gradveil.version import __version__


@dataclass(frozen=True)
class NetworkView:
    """Everything that the page says of one network before its details: answers, pictures, a row per defense, plots."""

    dataset: str
    model: str
    answers: tuple[Answer, ...]
    strip: Strip
    board: list[BoardRow]
    no_cost: str | None
    tradeoff: Plot | None
    ranks: list[DefensePanel]
    steps: list[PanelGroup]

    @classmethod
    def of(cls, study: Study, dataset: str, model: str) -> "NetworkView":
        answers = answers_of(study, dataset, model)
        return cls(
            dataset,
            model,
            answers,
            strip_of(study, dataset, model, answers[1].defense),
            board_of(study, dataset, model),
            study.no_cost(dataset, model),
            tradeoff_plot(study, dataset, model),
            ranks_of(study, dataset, model),
            [*over_threats(study, dataset, model), *over_stages(study, dataset, model)],
        )


def write_page(study: Study) -> Path:
    """Write `report.html` into the folder of a study, and `records.jsonl`, its records without pictures."""
    run = study.run
    order = {(one.dataset, one.model, str(one.stage), one.defense): place for place, one in enumerate(study.findings)}
    wall = wall_of(run.records, run.situations)
    html = render(
        "page.html.j2",
        study=study,
        run=run,
        views=[NetworkView.of(study, *key) for key in study.summaries],
        next_step=next_step(study),
        traces=sorted(trace_plots(run.records, run.situations), key=lambda one: order[one.cell]),
        power=describe_power_of(study),
        other_threat=OTHER_THREAT,
        decoys=_decoys(run.records),
        wall=wall,
        on_wall=sum(len(card.rebuilt) for card in wall),
        choices=choices_of(wall, list(dict.fromkeys(str(one.stage) for one in study.findings))),
        knowledge=attacker_knowledge(run.records),
        attackers=sorted(
            {record.scenario.attacker for record in run.records}, key=lambda name: (name != "plain", name)
        ),
        versions=versions() | {"gradveil of the records": ", ".join(sorted({one.gradveil for one in run.records}))},
        seeds=sorted({record.scenario.seed for record in run.records}),
        plan=None if run.plan is None else format_plan(run.plan),
        earlier=[_differences(one, run.plan) for one in run.plans if run.plan is not None and one != run.plan],
    )
    write_text(run.folder / "records.jsonl", "".join(_line(one) for one in run.stored))
    path = run.folder / "report.html"
    write_text(path, html)
    return path


def render(template: str, **values: object) -> str:
    """A template with everything that all pages have; its script is the only one that a browser will run."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gradveil.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "mean": format_mean,
        "number": format_number,
        "percent": format_percent,
        "points": format_points,
        "rank": format_rank,
        "firsts": format_first,
        "labels": labels_read,
        "is_control": is_control,
        "defenses_in": defenses_in,
        "place": place,
        "defense_title": defense_title,
        "words": defense_in_words,
        "describe": describe_defense,
        "verdict": short_verdict,
        "shade": shade_of,
        "lineup": describe_lineup,
    }
    assert environment.loader is not None
    script, style = (environment.loader.get_source(environment, name)[0] for name in ("page.js", "page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        script=Markup(script),
        style=Markup(style),
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        undefended=UNDEFENDED,
        word=WORD,
        definitions=DEFINITIONS,
        grades=GRADES,
        bars=BARS,
        roles=ROLES,
        **values,
    )


def versions() -> dict[str, str]:
    """Of what made the page."""
    return {"gradveil": __version__, "torch": torch.__version__, "Python": platform.python_version()}


def _decoys(records: Sequence[Record]) -> str:
    """How many others stand in a lineup, `100`, or `87 to 100`."""
    counts = {len(record.rank.decoys) for record in records if record.rank is not None} or {0}
    return " to ".join(f"{count}" for count in sorted({min(counts), max(counts)}))


def _differences(plan: AuditSettings, last: AuditSettings) -> str:
    """What an earlier plan asked for otherwise than the last."""
    there = format_plan(last)
    return "; ".join(f"{name}: {value}" for name, value in format_plan(plan).items() if value != there[name])


def _line(one: StoredRecord) -> str:
    """A record as one line; its pictures stay in the file it names."""
    fields = {"file": f"records/{one.name}.json", "scenario": asdict(one.record.scenario), **one.record.figures()}
    return json.dumps(fields, sort_keys=True, allow_nan=False) + "\n"
