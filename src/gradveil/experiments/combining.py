"""Rules made of rules, and one verdict made of several."""

from collections.abc import Sequence

from gradveil.experiments.experiment import Level, Rule, Verdict
from gradveil.experiments.records import Result

WORST_FIRST: tuple[Level, ...] = ("does not hold", "undecided", "holds")
_AS_PART: dict[Level, str] = {"does not hold": "does not hold", "undecided": "is undecided", "holds": "holds"}


def each(*rules: Rule) -> Rule:
    """Holds if every one does; does not if one does not."""

    def decide(result: Result) -> Verdict:
        return joined([one(result) for one in rules])

    parts = " ".join(f"({number}) {one.text}" for number, one in enumerate(rules, 1))
    return Rule(f"Every part has to hold. {parts}", decide)


def joined(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of several parts that all have to hold; what decided is said first."""
    level = min((one.level for one in verdicts), key=WORST_FIRST.index)
    deciding = [one.why for one in verdicts if one.level == level]
    others = [f"Another part, by itself, {_AS_PART[one.level]}: {one.why}" for one in verdicts if one.level != level]
    if len(others) > 1:
        counts = {kind: sum(one.level == kind for one in verdicts) for kind in WORST_FIRST if kind != level}
        said = " and ".join(f"{_AS_PART[kind]} in {many}" for kind, many in counts.items() if many)
        others = [f"By itself it {said} of {len(verdicts)} comparisons."]
    more = [one.more for one in verdicts if one.level == level and one.more]
    rests_on = dict.fromkeys(one.n for one in verdicts if one.n)
    return Verdict(level, " ".join([*deciding, *others]), ", ".join(rests_on), ", ".join(dict.fromkeys(more)))


def at_scale(*, cpu: Rule, paper: Rule) -> Rule:
    """One rule per scale, where networks have other names."""
    return Rule(cpu.text, lambda result: (paper if result.scale == "paper" else cpu)(result))
