"""A row for everything that was attacked: its grade, and how high the right image ranks to who ignores it and to who knows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gradveil.auditing.answers import defenses_of
from gradveil.auditing.averages import RandomMean
from gradveil.auditing.comparisons import is_control, is_one_policy
from gradveil.auditing.findings import AttackFindings, Findings, worst_of
from gradveil.auditing.study import DefenseSummary, Study
from gradveil.auditing.summary import OverallVerdict
from gradveil.auditing.verdicts import LEAKS, PROTECTS, Verdict
from gradveil.leakage.identification import Identification
from gradveil.leakage.scenario import UNDEFENDED

Role = Literal["baseline", "defense", "control", "placebo"]
# How many of three bars a verdict fills.
BARS = {"exact": 3, "recognisable": 2, "faint": 1}
ROLES: dict[Role, str] = {
    "baseline": "what it is without a defense",
    "defense": "",
    "control": "control: what any policy does",
    "placebo": "control: images that were not attacked",
}


@dataclass(frozen=True)
class Mark:
    """A mean percentile with its 95% interval, in percent, over `n` images; `who` says to whom."""

    who: str
    percentile: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, who: str, found: Identification) -> "Mark":
        return cls(who, 100 * found.percentile, 100 * found.low, 100 * found.high, found.n)

    @property
    def text(self) -> str:
        return (
            f"{self.who}: above {self.percentile:.0f}% (95% interval {self.low:.0f}% to {self.high:.0f}%), n={self.n}"
        )


@dataclass(frozen=True)
class BoardRow:
    """One row; `place` is its number among the summaries, for links. What has no verdict has a `note` instead.

    `shade` is the grade of a leak, or the tone of what does not leak: what colours follow.
    """

    role: Role
    defense: str
    shade: str
    marks: tuple[Mark, ...]
    summary: DefenseSummary | None = None
    place: int = 0
    note: tuple[str, str] = ("", "")

    @property
    def label(self) -> str:
        """What the marks show, for who does not see them."""
        return "; ".join(mark.text for mark in self.marks) or "no decoys"


def board_of(study: Study, dataset: str, model: str) -> list[BoardRow]:
    """No defense first, then defenses, those that help most first, and at the end what they have to beat."""
    summaries = study.summaries[dataset, model]
    places = {one.overall.defense: place for place, one in enumerate(summaries, 1)}
    bare = [one for one in summaries if one.overall.defense == UNDEFENDED]
    tried = sorted(defenses_of(summaries), key=lambda one: (one.overall.level != PROTECTS, one.worst.percentile))
    controls = [one for one in summaries if is_control(one.overall.defense) and not is_one_policy(one.overall.defense)]
    ordered: Sequence[tuple[Role, list[DefenseSummary]]] = (
        ("baseline", bare),
        ("defense", tried),
        ("control", controls),
    )
    rows = [
        BoardRow(
            role,
            one.overall.defense,
            shade_of(one.overall),
            marks_of(one.decisive.findings),
            one,
            places[one.overall.defense],
        )
        for role, some in ordered
        for one in some
    ]
    rows += [_mean_row(one) for one in worst_means(study, dataset, model)]
    placebo = study.placebos[dataset, model]
    if placebo is not None:
        mark = Mark("all attackers", 100 * placebo.percentile, 100 * placebo.low, 100 * placebo.high, placebo.n)
        shade, word = ("protects", "Passed") if placebo.passed else ("exact", "Failed")
        within = "50% lies within" if placebo.passed else "50% lies outside"
        rows.append(BoardRow("placebo", "placebo", shade, (mark,), note=(word, within)))
    return rows


def worst_means(study: Study, dataset: str, model: str) -> list[RandomMean]:
    """Random policies that stand by themselves, averaged: every group where it leaks most."""
    groups: dict[str, RandomMean] = {}
    for one in study.random_means:
        if (one.dataset, one.model) == (dataset, model):
            other = groups.setdefault(one.name, one)
            groups[one.name] = max(one, other, key=lambda mean: mean.worst.percentile or (0.0,))
    return list(groups.values())


def _mean_row(one: RandomMean) -> BoardRow:
    marks: tuple[Mark, ...] = ()
    if one.worst.percentile is not None:
        mean, low, high = (100 * value for value in one.worst.percentile)
        marks = (Mark("knows it" if one.worst.attacker != "plain" else "ignores it", mean, low, high, one.worst.n),)
    return BoardRow("control", one.name, "unclear", marks, note=("Mean", f"of {one.policies} random policies"))


def marks_of(findings: Findings) -> tuple[Mark, ...]:
    """The best of those who ignore the defense, and the best of those who know it."""
    ignoring = [one for one in findings.attacks if one.attacker == "plain"]
    knowing = [one for one in findings.attacks if one.attacker != "plain"]
    if findings.defense == UNDEFENDED:
        return _mark("attacker", ignoring)
    return (*_mark("ignores it", ignoring), *_mark("knows it", knowing))


def shade_of(one: OverallVerdict | Verdict) -> str:
    """What a verdict is coloured by: how much leaks, where something does."""
    return one.grade if one.level == LEAKS else one.tone


def _mark(who: str, attacks: Sequence[AttackFindings]) -> tuple[Mark, ...]:
    found = worst_of(attacks).identified if attacks else None
    return () if found is None else (Mark.of(who, found),)
