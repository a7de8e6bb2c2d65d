"""Rules that decide claims about leaks from records. Each is a function of its settings that gives a function of the record.

What counts is identification: among others of its class, is the private image found by what was rebuilt? The papers' figure, the
PSNR to the shared image, is said beside it.
"""

from collections.abc import Callable, Sequence

from gradveil.auditing.spread import Spread, spread_of
from gradveil.experiments.comparing import (
    NOTABLE_ACCURACY,
    NOTABLE_RANK,
    leaks,
    paired,
    points,
    protects,
    within,
    words,
)
from gradveil.experiments.experiment import Verdict
from gradveil.experiments.records import Attacked, Result
from gradveil.leakage.scenario import UNDEFENDED

Rule = Callable[[Result], Verdict]
# What tables call ten random policies.
RANDOM_ROW = "random"


def chosen(result: Result, **wanted: str) -> list[Attacked]:
    """What was attacked where every named field fits.

    A field is, or begins with, the text: `stage="trained"` is any number of epochs. A row is the text, for
    `precode:k=256,at=net.layers.3` is another defense than `precode:k=256`.
    """
    return [
        one
        for one in result.found.attacked
        if all(
            getattr(one, name) == text or (name != "row" and text != "" and getattr(one, name).startswith(text))
            for name, text in wanted.items()
        )
    ]


def hides(what: str = "", attacker: str = "plain", **wanted: str) -> Rule:
    """Holds if images that are found without a defense are not found behind one; does not if they are, anywhere.

    Undecided where attacks fail without a defense too: then nothing was tested. `what` is the beginning of the defenses' names.
    """

    def rule(result: Result) -> Verdict:
        defended = [
            one
            for one in chosen(result, attacker=attacker, **wanted)
            if one.row not in (UNDEFENDED, RANDOM_ROW) and one.row.startswith(what)
        ]
        pairs = [(bare, one) for one in defended if (bare := _undefended(result, one)) is not None]
        if not pairs:
            return Verdict("undecided", "nothing of it was attacked")
        leaking = [one for _, one in pairs if leaks(one, len(pairs))]
        tested = [(bare, one) for bare, one in pairs if leaks(bare)]
        why = f"{_published_figure(pairs)} Found without a defense: {_counted([bare for bare, _ in pairs])}. "
        if leaking:
            worst = max(leaking, key=_percentile)
            return Verdict(
                "does not hold", f"{why}Behind {len(leaking)} of {len(pairs)} the image is found: {words(worst)}."
            )
        if not tested:
            return Verdict(
                "undecided", f"{why}The attack finds nothing without a defense either, so that nothing was tested."
            )
        unsure = [one for _, one in tested if not protects(one)]
        if unsure:
            return Verdict(
                "undecided", f"{why}At this n a leak cannot be excluded: {words(max(unsure, key=_percentile))}."
            )
        safest = max((one for _, one in tested), key=_percentile)
        return Verdict("holds", f"{why}Behind the defense it is not: {words(safest)}.")

    return rule


def found(attacker: str = "plain", **wanted: str) -> Rule:
    """Holds if the attack finds images there; does not if it finds at most what is tolerated."""

    def rule(result: Result) -> Verdict:
        cells = chosen(result, attacker=attacker, **wanted)
        if not cells:
            return Verdict("undecided", "nothing of it was attacked")
        leaking = [one for one in cells if leaks(one, len(cells))]
        # Few images may rank higher on average elsewhere, and be within luck.
        said = f"{len(leaking)} of {len(cells)} leak, most of all {words(max(leaking or cells, key=_percentile))}."
        if leaking:
            return Verdict("holds", said)
        return Verdict("does not hold" if all(map(protects, cells)) else "undecided", said)

    return rule


def more_in(there: dict[str, str], here: dict[str, str]) -> Rule:
    """Holds if images rank clearly higher `there` than `here`, paired by image; does not if clearly no higher."""

    def rule(result: Result) -> Verdict:
        pair = _compare(result, there, here)
        if pair is None:
            return Verdict("undecided", "the two were not attacked on the same images")
        difference, said = pair
        if difference.above_zero:
            return Verdict("holds", said)
        no_higher = difference.high is not None and difference.high <= 0
        return Verdict("does not hold" if no_higher else "undecided", said)

    return rule


def alike(there: dict[str, str], here: dict[str, str]) -> Rule:
    """Holds if images rank the same to within ten points, paired by image; does not if clearly by more."""

    def rule(result: Result) -> Verdict:
        pair = _compare(result, there, here)
        if pair is None:
            return Verdict("undecided", "the two were not attacked on the same images")
        return Verdict(within(pair[0], NOTABLE_RANK), pair[1])

    return rule


def knowing_helps() -> Rule:
    """Holds if images rank higher for who knows the defense than for who ignores it, over all defenses, paired by image."""

    def rule(result: Result) -> Verdict:
        cells = [one for one in result.found.attacked if one.attacker != "plain"]
        plain = [one for one in (_same_cell(result, one) for one in cells) if one is not None]
        if not plain:
            return Verdict("undecided", "nobody attacked who knows a defense")
        pair = _difference_of(cells, plain, "who knows it", "who ignores it")
        if pair is None:
            return Verdict("undecided", "the two did not attack the same images")
        gap, said = pair
        return Verdict("holds" if gap.above_zero else "does not hold" if gap.below_zero else "undecided", said)

    return rule


def each(*rules: Rule) -> Rule:
    """Holds if every one does; does not if one does not."""

    def rule(result: Result) -> Verdict:
        verdicts = [one(result) for one in rules]
        level = min((one.level for one in verdicts), key=("does not hold", "undecided", "holds").index)
        deciding = [one.why for one in verdicts if one.level == level]
        others = [f"Of another part: {one.level}. {one.why}" for one in verdicts if one.level != level]
        return Verdict(level, " ".join([*deciding, *others]))

    return rule


def at_scale(*, cpu: Rule, paper: Rule) -> Rule:
    """One rule per scale, where networks have other names."""

    def rule(result: Result) -> Verdict:
        return (paper if result.scale == "paper" else cpu)(result)

    return rule


def better_than_others(hybrid: str) -> Rule:
    """Table 3: holds if the hybrid clearly hides more than every other defense; does not if one hides more at no more cost.

    What the hybrid costs where it hides more is said, and does not decide.
    """

    def rule(result: Result) -> Verdict:
        ours = chosen(result, row=hybrid, attacker="plain")
        others = [one for one in chosen(result, attacker="plain") if one.row not in (UNDEFENDED, RANDOM_ROW, hybrid)]
        if not ours or not others:
            return Verdict("undecided", "the hybrid or the others were not attacked")
        gaps = {one.row: paired(one, ours[0]) for one in others}
        known = {row: gap for row, gap in gaps.items() if gap is not None}
        accuracies = {one.row: one.accuracy for one in result.found.trained}
        said = f"The hybrid: {words(ours[0])}. Above it by " + ", ".join(
            f"{points(gap)} points {row}" for row, gap in known.items()
        )
        if accuracies:
            said += f". Accuracies: {', '.join(f'{row} {value:.1%}' for row, value in accuracies.items())}"
        beaten = [row for row, gap in known.items() if gap.high is not None and gap.high < 0]
        cheaper = [row for row in beaten if accuracies.get(row, 0.0) >= accuracies.get(hybrid, 1.0) - NOTABLE_ACCURACY]
        if cheaper:
            return Verdict("does not hold", f"{said}. {', '.join(cheaper)} hide more at no more cost.")
        if all(gap.low is not None and gap.low > 0 for gap in known.values()):
            return Verdict("holds", f"{said}.")
        return Verdict("undecided", f"{said}: not all differences are clear.")

    return rule


def _compare(result: Result, there: dict[str, str], here: dict[str, str]) -> tuple[Spread, str] | None:
    """The mean difference over all pairs of cells, image by image, and in words."""
    return _difference_of(chosen(result, **there), chosen(result, **here), _named(there), _named(here))


def _difference_of(
    first: Sequence[Attacked], second: Sequence[Attacked], there: str, here: str
) -> tuple[Spread, str] | None:
    if not first or not second:
        return None
    means = [_mean_percentiles(first), _mean_percentiles(second)]
    common = sorted(means[0].keys() & means[1].keys())
    if not common:
        return None
    difference = spread_of([means[0][index] - means[1][index] for index in common])
    average = [sum(own[index] for index in common) / len(common) for own in means]
    pooled = ["" if len(cells) == 1 else f" (mean of {len(cells)} settings)" for cells in (first, second)]
    both = f"{there}: above {average[0]:.0%}{pooled[0]}; {here}: above {average[1]:.0%}{pooled[1]}"
    said = f"{both}; difference {points(difference)} points, n={len(common)}."
    return difference, said


def _mean_percentiles(cells: Sequence[Attacked]) -> dict[int, float]:
    """By image, over the cells that have it."""
    values: dict[int, list[float]] = {}
    for cell in cells:
        for index, value in cell.percentiles.items():
            values.setdefault(index, []).append(value)
    return {index: sum(own) / len(own) for index, own in values.items()}


def _same_cell(result: Result, one: Attacked) -> Attacked | None:
    """The same cell, attacked by somebody who ignores the defense."""
    names = ("dataset", "model", "stage", "row", "attack", "threat")
    same = {name: getattr(one, name) for name in names}
    cells = [
        other for other in chosen(result, attacker="plain") if all(getattr(other, n) == v for n, v in same.items())
    ]
    return cells[0] if cells else None


def _undefended(result: Result, one: Attacked) -> Attacked | None:
    """The same attack on the same network without a defense."""
    same = {name: getattr(one, name) for name in ("dataset", "model", "stage", "attack", "threat")}
    return next(
        (bare for bare in chosen(result, row=UNDEFENDED) if all(getattr(bare, n) == v for n, v in same.items())), None
    )


def _published_figure(pairs: Sequence[tuple[Attacked, Attacked]]) -> str:
    """What the papers would say; an image that several attacks had counts once."""
    differences: dict[int, list[float]] = {}
    for bare, one in pairs:
        before, after = (dict(zip(cell.indices, cell.shared_psnr, strict=True)) for cell in (bare, one))
        for index in before.keys() & after.keys():
            differences.setdefault(index, []).append(after[index] - before[index])
    if not differences:
        return ""
    change = spread_of([sum(own) / len(own) for _, own in sorted(differences.items())])
    interval = "" if change.low is None else f" ({change.low:+.1f} to {change.high:+.1f})"
    return f"By the papers' figure, PSNR to the shared image, {change.mean:+.1f} dB{interval} with the defense."


def _counted(cells: Sequence[Attacked]) -> str:
    distinct = list({(*one.setting, one.attack, one.threat): one for one in cells}.values())
    return f"in {sum(map(leaks, distinct))} of {len(distinct)} settings"


def _percentile(one: Attacked) -> float:
    return 0.5 if one.identified is None else one.identified.percentile


def _named(fields: dict[str, str]) -> str:
    return ", ".join(fields.values())
