"""One self-contained HTML page from a study."""

import base64
import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import jinja2
import torch
from markupsafe import Markup

from gradveil.auditing.comparisons import is_control
from gradveil.auditing.findings import AttackFindings, Findings
from gradveil.auditing.folder import StoredRecord
from gradveil.auditing.plan import AuditSettings
from gradveil.auditing.spread import Spread
from gradveil.auditing.study import Study
from gradveil.auditing.verdicts import GRADES
from gradveil.io.files import write_text
from gradveil.leakage.identification import Identification
from gradveil.leakage.records import Record
from gradveil.leakage.scenario import UNDEFENDED, defense_title
from gradveil.report.figures import leakage_plot, tradeoff_plot
from gradveil.report.groups import place
from gradveil.report.traces import trace_plots
from gradveil.report.wall import wall_tiles
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

NOTHING = "\N{EN DASH}"


def write_page(study: Study) -> Path:
    """Write `report.html` into the folder of a study, and `records.jsonl`, its records without pictures."""
    run = study.run
    order = {(one.dataset, one.model, str(one.stage), one.defense): place for place, one in enumerate(study.findings)}
    wall = wall_tiles(run.stored)
    html = render(
        "page.html.j2",
        study=study,
        run=run,
        plots={key: (leakage_plot(study, *key), tradeoff_plot(study, *key)) for key in study.summaries},
        traces=sorted(trace_plots(run.records, run.situations), key=lambda one: order[one.cell]),
        power=describe_power_of(study),
        other_threat=OTHER_THREAT,
        decoys=_decoys(run.records),
        wall=wall,
        choices={
            "defense": sorted(
                {tile.record.scenario.defense for tile in wall}, key=lambda name: (name != UNDEFENDED, name)
            ),
            "attack": sorted({tile.record.scenario.attack_in_words for tile in wall}),
            "attacker": sorted(
                {tile.record.scenario.attacker for tile in wall}, key=lambda name: (name != "plain", name)
            ),
            "stage": list(dict.fromkeys(str(one.stage) for one in study.findings)),
            "model": list(dict.fromkeys(one.model for one in study.findings)),
        },
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
        "place": place,
        "defense_title": defense_title,
        "describe": describe_defense,
        "verdict": short_verdict,
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
        **values,
    )


def versions() -> dict[str, str]:
    """Of what made the page."""
    return {"gradveil": __version__, "torch": torch.__version__, "Python": platform.python_version()}


def format_plan(plan: AuditSettings) -> dict[str, str]:
    """A plan for people."""
    return {field.name: format_setting(getattr(plan, field.name)) for field in fields(plan)}


def format_setting(value: object) -> str:
    """A setting for people."""
    if isinstance(value, tuple | list):
        return ", ".join(format_setting(one) for one in value)
    if value is None:
        return "as usual"
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_mean(spread: Spread, digits: int = 1) -> str:
    """`1.6 (0.9 to 2.3)`, or without the interval where one image gives none."""
    if spread.low is None or spread.high is None:
        return format_number(spread.mean, digits)
    return f"{format_number(spread.mean, digits)} ({format_number(spread.low, digits)} to {format_number(spread.high, digits)})"


def format_points(spread: Spread) -> str:
    """A difference of fractions in percentage points, `+5 (-2 to +12)`."""
    if spread.low is None or spread.high is None:
        return _signed(spread.mean)
    return f"{_signed(spread.mean)} ({_signed(spread.low)} to {_signed(spread.high)})"


def format_rank(found: Identification | None) -> str:
    """`97% (93% to 99%)`; a dash where there are no decoys."""
    return NOTHING if found is None else f"{found.percentile:.0%} ({found.interval})"


def format_first(found: Identification | None) -> str:
    """`10 of 12`; a dash where there are no decoys."""
    return NOTHING if found is None else f"{found.first.count} of {found.n}"


def labels_read(found: Findings | AttackFindings) -> str:
    """How many labels the gradient gives away, to the best of several attacks; a dash where they cannot be read."""
    attacks = found.attacks if isinstance(found, Findings) else (found,)
    read = [one.labels_read for one in attacks if one.labels_read is not None]
    return f"{max(read):.0%}" if read else NOTHING


def format_number(value: float | None, digits: int = 1) -> str:
    """With a real minus, and a dash for nothing."""
    if value is None:
        return NOTHING
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def format_percent(value: float, digits: int = 1) -> str:
    """A fraction as a percentage."""
    return f"{format_number(100 * value, digits)}%"


def _decoys(records: Sequence[Record]) -> str:
    """How many others stand in a lineup, `100`, or `87 to 100`."""
    counts = {len(record.rank.decoys) for record in records if record.rank is not None} or {0}
    return " to ".join(f"{count}" for count in sorted({min(counts), max(counts)}))


def _signed(fraction: float) -> str:
    """In percentage points, with its sign."""
    points = round(100 * fraction)
    return f"{points:+d}".replace("-", "\N{MINUS SIGN}") if points else "0"


def _differences(plan: AuditSettings, last: AuditSettings) -> str:
    """What an earlier plan asked for otherwise than the last."""
    there = format_plan(last)
    return "; ".join(f"{name}: {value}" for name, value in format_plan(plan).items() if value != there[name])


def _line(one: StoredRecord) -> str:
    """A record as one line; its pictures stay in the file it names."""
    fields = {"file": f"records/{one.name}.json", "scenario": asdict(one.record.scenario), **one.record.figures()}
    return json.dumps(fields, sort_keys=True, allow_nan=False) + "\n"
