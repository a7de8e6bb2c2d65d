"""Rules that decide claims about differences between settings from records: where is more found, and where is it the same?"""

from collections.abc import Sequence

from gradveil.auditing.spread import Spread, spread_of
from gradveil.experiments.cells import hardly_learned, percentile_of, words
from gradveil.experiments.combining import WORST_FIRST, joined
from gradveil.experiments.comparing import (
    NOTABLE_ACCURACY,
    NOTABLE_DETAIL,
    NOTABLE_RANK,
    apart,
    both_ranks,
    count_images,
    number_to_decide,
    paired,
    pairs_of,
    points,
    pooled,
    within,
)
from gradveil.experiments.experiment import Level, Rule, Verdict
from gradveil.experiments.leak_rules import RANDOM_ROW, chosen
from gradveil.experiments.records import Attacked, Result
from gradveil.leakage.scenario import UNDEFENDED, defense_title

# Who ranks above so many can hardly rank higher.
AT_THE_TOP = 0.9
# So many settings have their differences said one by one.
MOST_NAMED = 4


def more_in(there: dict[str, str], here: dict[str, str], *, detail: bool = False) -> Rule:
    """Whether images rank higher `there` than `here` in every setting, paired by image.

    With `detail`, this decides where nearly all images rank first in both, and cannot rank higher.
    """

    def decide(result: Result) -> Verdict:
        pairs = pairs_of(chosen(result, **there), chosen(result, **here), {*there, *here})
        absent = "the two were not attacked on the same images"
        if not pairs:
            return Verdict("undecided", absent)
        names = [(f"{apart(pair, pairs)}: {_named(there)}".removeprefix(": "), _named(here)) for pair in pairs]
        return joined(
            [
                _more_detail(pair, *both)
                if detail and all(percentile_of(one) > AT_THE_TOP for one in pair)
                else _higher([pair], *both, absent)
                for pair, both in zip(pairs, names, strict=True)
            ]
        )

    also = f" Where both rank above {AT_THE_TOP:.0%}, detail decides instead." if detail else ""
    return Rule(
        "Holds if in every setting the mean rank is clearly higher, paired by image. Does not hold if in one it is clearly "
        f"lower.{also}",
        decide,
    )


def _more_detail(pair: tuple[Attacked, Attacked], there: str, here: str) -> Verdict:
    """Whether clearly more detail is rebuilt in the first of two."""
    change = _change_of_detail(*pair)
    said, n = both_ranks(pair, there, here), count_images(pair)
    if change is None:
        return Verdict("undecided", f"{said}.", n)
    level: Level = "holds" if change.above_zero else "does not hold" if change.below_zero else "undecided"
    more = f"{number_to_decide(change, 0.0)} images" if level == "undecided" else ""
    return Verdict(level, f"{said}, difference {_decibels(change)} of detail.", n, more)


def alike(*there: dict[str, str], here: dict[str, str], detail: bool = False) -> Rule:
    """Whether images rank the same in every setting, paired by image; with `detail`, whether as much detail is rebuilt, too."""

    def decide(result: Result) -> Verdict:
        verdicts: list[Verdict] = []
        for other in there:
            pairs = pairs_of(chosen(result, **other), chosen(result, **here), {*other, *here})
            verdicts += [
                _if_learned(
                    result,
                    pair,
                    _same(pair, gap, f"{apart(pair, pairs)}: {_named(other)}".removeprefix(": "), _named(here), detail),
                )
                for pair in pairs
                if (gap := paired(*pair)) is not None
            ]
        return joined(verdicts) if verdicts else Verdict("undecided", "they were not attacked on the same images")

    also = f", and of detail to within {NOTABLE_DETAIL:g} dB" if detail else ""
    return Rule(
        f"Holds if in every setting mean ranks are the same to within {100 * NOTABLE_RANK:.0f} points{also} (whole interval), "
        "paired by image. Does not hold if in one they differ by more. Networks that hardly learned decide nothing.",
        decide,
    )


def _if_learned(result: Result, pair: Sequence[Attacked], verdict: Verdict) -> Verdict:
    """The verdict on a pair, undecided where one of the two trained networks classifies little better than by guessing."""
    for cell in pair:
        own = result.trainings(cell.model, cell.dataset, cell.row)
        if cell.stage.startswith("trained") and own and all(map(hardly_learned, own)):
            accuracy = sum(one.accuracy for one in own) / len(own)
            said = f"{verdict.why} With {cell.row} the network hardly learned: {accuracy:.0%} are classified right."
            return Verdict("undecided", said, verdict.n, "longer trainings")
    return verdict


def _same(pair: tuple[Attacked, Attacked], gap: Spread, there: str, here: str, detail: bool) -> Verdict:
    """Whether a difference of ranks, and of detail, is one that nobody would notice."""
    said = f"{both_ranks(pair, there, here)}, difference {points(gap)} points"
    level = within(gap, NOTABLE_RANK)
    more = f"{number_to_decide(gap, -NOTABLE_RANK, NOTABLE_RANK)} images" if level == "undecided" else ""
    if detail and (change := _change_of_detail(*pair)) is not None:
        said += f" and {_decibels(change)} of detail"
        level = min(level, within(change, NOTABLE_DETAIL), key=WORST_FIRST.index)
    return Verdict(level, f"{said}.", count_images(pair), more)


def knowing_helps() -> Rule:
    """Whether images rank higher for who knows the defense than for who ignores it, over all defenses and stages."""

    def decide(result: Result) -> Verdict:
        cells = [one for one in result.found.attacked if one.attacker != "plain"]
        pairs = pairs_of(cells, chosen(result, attacker="plain"), {"attacker"})
        return _higher(pairs, "who knows it", "who ignores it", "nobody attacked who knows a defense")

    return Rule(
        "Holds if the mean rank is clearly higher for who knows the defense, paired by image; every setting counts the same. "
        "Does not hold if it is clearly lower.",
        decide,
    )


def better_than_others(hybrid: str) -> Rule:
    """Table 3: holds if the hybrid clearly hides more than every other defense; does not if one hides more at no more cost.

    What the hybrid costs where it hides more is said, and does not decide.
    """

    def decide(result: Result) -> Verdict:
        ours = chosen(result, row=hybrid, attacker="plain")
        others = [one for one in chosen(result, attacker="plain") if one.row not in (UNDEFENDED, RANDOM_ROW, hybrid)]
        if not ours or not others:
            return Verdict("undecided", "the hybrid or the others were not attacked")
        gaps = {one.row: paired(one, ours[0]) for one in others}
        known = {row: gap for row, gap in gaps.items() if gap is not None}
        accuracies = {one.row: one.accuracy for one in result.found.trained}
        said = f"The hybrid: {words(ours[0], result.tried)}. Above it by " + ", ".join(
            f"{points(gap)} points {row}" for row, gap in known.items()
        )
        n = count_images([*ours, *others])
        beaten = [row for row, gap in known.items() if gap.high is not None and gap.high < 0]
        cheaper = [row for row in beaten if accuracies.get(row, 0.0) >= accuracies.get(hybrid, 1.0) - NOTABLE_ACCURACY]
        if cheaper:
            return Verdict("does not hold", f"{said}. {', '.join(cheaper)} hide more at no more cost.", n)
        unclear = [gap for gap in known.values() if not gap.above_zero]
        if not unclear:
            return Verdict("holds", f"{said}.", n)
        more = f"{number_to_decide(min(unclear, key=lambda gap: gap.mean), 0.0)} images"
        return Verdict("undecided", f"{said}: not all differences are clear.", n, more)

    return Rule(
        "Holds if the mean rank behind the hybrid is clearly lower than behind each of the others, paired by image. Does not "
        "hold if it is clearly higher than behind one that costs no more accuracy. Attackers ignore the defenses.",
        decide,
    )


def _higher(pairs: Sequence[tuple[Attacked, Attacked]], there: str, here: str, absent: str) -> Verdict:
    """Whether images rank clearly higher in the first of each pair."""
    gap = pooled(pairs)
    if gap is None:
        return Verdict("undecided", absent)
    level: Level = "undecided"
    if gap.above_zero:
        level = "holds"
    elif gap.below_zero:
        level = "does not hold"
    n = count_images([one for pair in pairs for one in pair])
    more = f"{number_to_decide(gap, 0.0)} images" if level == "undecided" else ""
    if len(pairs) == 1:
        return Verdict(level, f"{both_ranks(pairs[0], there, here)}, difference {points(gap)} points.", n, more)
    said = f"{there} against {here}: {points(gap)} points, the mean of {len(pairs)} settings"
    each = {apart(pair, pairs): own for pair in pairs if (own := paired(*pair)) is not None}
    if len(each) <= MOST_NAMED:
        said += f" ({'; '.join(f'{where} {points(own)}' for where, own in each.items())})"
    else:
        stages = dict.fromkeys(one.stage for one, _ in pairs)
        some = {stage: pooled([pair for pair in pairs if pair[0].stage == stage]) for stage in stages}
        by_stage = {stage: own for stage, own in some.items() if own is not None}
        said += f" ({'; '.join(f'{stage} {points(own)}' for stage, own in by_stage.items())})"
    return Verdict(level, f"{said}.", n, more)


def _decibels(change: Spread) -> str:
    return f"{change.mean:+.1f} dB ({change.low:+.1f} to {change.high:+.1f})"


def _change_of_detail(first: Attacked, second: Attacked) -> Spread | None:
    """In dB, paired by image."""
    here, there = (dict(zip(one.indices, one.detail, strict=True)) for one in (first, second))
    common = sorted(here.keys() & there.keys())
    return spread_of([here[index] - there[index] for index in common]) if len(common) > 1 else None


def _named(fields: dict[str, str]) -> str:
    return ", ".join(defense_title(value) if name == "row" else value for name, value in fields.items())
