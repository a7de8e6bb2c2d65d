"""How leakage spreads: over the places in a lineup, over stages of training, and over threats. A panel per defense."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gradveil.auditing.comparisons import is_one_policy
from gradveil.auditing.steps import defenses_in
from gradveil.auditing.study import Study
from gradveil.auditing.verdicts import Verdict
from gradveil.defenses.words import distinct_words
from gradveil.report.board import shade_of
from gradveil.report.panels import Panel, percent_ticks
from gradveil.training.stage import Stage

BINS = 10
LONGEST_TICK, WIDEST = 11, 48  # letters of one name on an axis, and of all of them
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class DefensePanel:
    """A plot of one defense, and how many images are in it; of the placebo how many runs."""

    words: str
    n: int
    panel: Panel


@dataclass(frozen=True)
class PanelGroup:
    """Panels that belong together, below a heading."""

    title: str
    panels: tuple[DefensePanel, ...]


def ranks_of(study: Study, dataset: str, model: str) -> list[DefensePanel]:
    """Where the private images stand among their decoys, to the worst attacker; and where images stand that nobody attacked."""
    summaries = [one for one in study.summaries[dataset, model] if not is_one_policy(one.overall.defense)]
    words = distinct_words(one.overall.defense for one in summaries)
    panels = [
        _ranks(
            words[one.overall.defense], list(one.decisive.findings.worst.percentiles.values()), shade_of(one.overall)
        )
        for one in summaries
    ]
    placebo = [
        record.placebo.percentile
        for record in study.run.records
        if (record.scenario.dataset, record.scenario.model) == (dataset, model) and record.placebo is not None
    ]
    return [one for one in (*panels, _ranks("placebo: not attacked", placebo, "unclear")) if one.n]


def over_stages(study: Study, dataset: str, model: str) -> list[PanelGroup]:
    """How leakage goes on as the network is trained, for every threat that was tried at several stages."""
    verdicts: dict[str, dict[str, dict[Stage, Verdict]]] = {}
    for found, verdict in zip(study.findings, study.verdicts, strict=True):
        if (found.dataset, found.model) == (dataset, model) and not is_one_policy(found.defense):
            own = verdicts.setdefault(found.stage.threat, {}).setdefault(found.defense, {})
            own[found.stage.stage] = verdict
    groups = []
    for threat, defenses in verdicts.items():
        stages = sorted({stage for by_stage in defenses.values() for stage in by_stage})
        if len(stages) > 1:
            units = {stage.unit for stage in stages if stage.count}
            name = "training rounds" if units == {"rounds"} else "training, in steps, rounds (r) or epochs"
            name = name if "rounds" in units else "training, in steps or epochs"
            names = {stage: _stage_tick(stage, several=len(units) > 1) for stage in stages}
            title = "Over training" + (f", {threat}" if threat else "")
            groups.append(PanelGroup(title, _series(defenses, names, name)))
    return groups


def over_threats(study: Study, dataset: str, model: str) -> list[PanelGroup]:
    """From the worst case to what is deployed, where several threats were audited."""
    steps = study.steps.get((dataset, model), [])
    if not steps:
        return []
    names = {step.threat: _shorten(step.threat, max(LONGEST_TICK, WIDEST // len(steps))) for step in steps}
    series = {
        defense: {step.threat: step.verdicts[defense] for step in steps if defense in step.verdicts}
        for defense in defenses_in(steps)
    }
    return [PanelGroup("Over threats", _series(series, names, "threat, from the worst case to what is deployed"))]


def _series(
    defenses: Mapping[str, Mapping[Key, Verdict]], names: Mapping[Key, str], x_name: str
) -> tuple[DefensePanel, ...]:
    words = distinct_words(defenses)
    # Not at the very edges, where a dot would hide the axis.
    places = {key: (number + 0.4) / (len(names) - 0.2) for number, key in enumerate(names)}
    panels = []
    for defense, verdicts in defenses.items():
        found = [(places[key], names[key], one) for key, one in verdicts.items() if one.identified is not None]
        if not found:
            continue
        said = ", ".join(f"{name}: {one.percentile:.0%}" for _, name, one in found)
        panel = Panel(
            f"{words[defense]}: ranks above {said}", [(places[key], name) for key, name in names.items()],
            percent_ticks(0, 0.5, 1), x_name,
        )  # fmt: skip
        panel.level(0.5, "chance")
        panel.line([(at, one.percentile) for at, _, one in found], "way")
        for at, name, one in found:
            assert one.identified is not None
            text = f"{name}: above {one.percentile:.0%} ({one.identified.interval}), n={one.n}"
            panel.dot(at, one.percentile, one.identified.low, one.identified.high, shade_of(one), text)
        panels.append(DefensePanel(words[defense], max(one.n for _, _, one in found), panel))
    return tuple(panels)


def _ranks(words: str, percentiles: Sequence[float], shade: str) -> DefensePanel:
    n = len(percentiles)
    counts = [0] * BINS
    for value in percentiles:
        counts[min(BINS - 1, int(BINS * value))] += 1
    fractions = [count / max(1, n) for count in counts]
    panel = Panel(
        f"{words}: {counts[-1]} of {n} images rank above nine tenths of their decoys; by chance one in ten",
        [(0, "last"), (0.5, "middle"), (1, "first")],
        percent_ticks(0, 0.5, 1),
        "place among the decoys",
    )
    for number, (count, fraction) in enumerate(zip(counts, fractions, strict=True)):
        said = f"above {number / BINS:.0%} to {(number + 1) / BINS:.0%} of the decoys: {count} of {n} images"
        if count:
            panel.bar((number + 0.08) / BINS, (number + 0.92) / BINS, fraction, shade, said)
    panel.level(1 / BINS, "chance")
    return DefensePanel(words, n, panel)


def _stage_tick(stage: Stage, *, several: bool) -> str:
    units = {"steps": "", "rounds": " r" if several else "", "epochs": " ep."}
    return f"{stage.count:g}{units[stage.unit]}" if stage.unit in units else _shorten(str(stage))


def _shorten(name: str, longest: int = LONGEST_TICK) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
