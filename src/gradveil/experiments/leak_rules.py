"""Rules that decide claims about leaks from records. Each is a function of its settings that gives a function of the record.

What counts is identification: among others of its class, is the private image found by what was rebuilt? The papers' figure, the
PSNR to the shared image, is said beside it.
"""

from collections.abc import Sequence

from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.spread import spread_of
from gradveil.auditing.verdicts import Grade
from gradveil.experiments.cells import (
    above_chance,
    images_to_decide,
    is_at_least,
    leaks,
    percentile_of,
    protects,
    words,
)
from gradveil.experiments.comparing import (
    count_images,
    undefended_of,
)
from gradveil.experiments.experiment import Rule, Verdict
from gradveil.experiments.records import Attacked, Result
from gradveil.leakage.scenario import UNDEFENDED

# What tables call ten random policies.
RANDOM_ROW = "random"
WITHOUT_PLACEBO = "Without the placebo, which was added after the record was seen, it would not hold."


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


def hides(what: str = "", attacker: str = "plain", *, least: Grade = "faint", **wanted: str) -> Rule:
    """Whether images that are found without a defense are not found behind one; `what` begins the defenses' names.

    What is found behind it counts against it from the grade `least` on. Undecided where attacks fail without a defense too: then
    nothing was tested.
    """

    def decide(result: Result) -> Verdict:
        defended = [
            one
            for one in chosen(result, attacker=attacker, **wanted)
            if one.row not in (UNDEFENDED, RANDOM_ROW) and one.row.startswith(what)
        ]
        pairs = [(bare, one) for one in defended if (bare := undefended_of(result, one)) is not None]
        if not pairs:
            return Verdict("undecided", "nothing of it was attacked")
        tried, n = result.tried, count_images([one for _, one in pairs])
        tested = [(bare, one) for bare, one in pairs if leaks(bare, tried)]
        leaking = [(bare, one) for bare, one in pairs if leaks(one, tried)]
        bares = list({id(bare): bare for bare, _ in pairs}.values())
        before = f"Found without a defense: in {sum(leaks(one, tried) for one in bares)} of {len(bares)} settings."
        after = f"{_diverged([one for _, one in pairs])}{_published_figure(pairs)}"
        if leaking:
            bare, worst = max(leaking, key=lambda pair: percentile_of(pair[1]))
            plainly = sum(is_at_least(one, "recognisable") for _, one in leaking)
            said = (
                f"{before} Behind it in {len(leaking)} of {len(pairs)}, recognisable in {plainly}. Most of all: "
                f"{words(worst, tried)}; without it above {percentile_of(bare):.0%}. {after}"
            )
            if any(is_at_least(one, least) for _, one in leaking):
                return Verdict("does not hold", said, n)
            return Verdict("undecided", said, n, f"longer attacks, to see whether it becomes {least}")
        if not tested:
            said = f"{before} The attack finds nothing without a defense either, so that nothing was tested. {after}"
            return Verdict("undecided", said, n, "longer attacks, or a network that is trained less")
        if any(above_chance(one, tried) for one in defended):
            after = f"{WITHOUT_PLACEBO} {after}"
        unsure = [one for _, one in tested if not protects(one)]
        if unsure:
            worst = max(unsure, key=percentile_of)
            said = f"{before} At this n a leak cannot be excluded: {words(worst, tried)}. {after}"
            return Verdict("undecided", said, n, images_to_decide(worst, tried))
        safest = max((one for _, one in tested), key=percentile_of)
        return Verdict("holds", f"{before} Behind it nowhere: {words(safest)}. {after}", n)

    grade = "" if least == "faint" else f", and {least},"
    return Rule(
        "Holds if images that are found without the defense are not found behind it: on average they rank above at most "
        f"{TOLERANCE:.0%} of others (upper end). Does not hold if they are found{grade} behind it in any setting. Attackers "
        f"{'ignore' if attacker == 'plain' else 'know'} the defense.",
        decide,
    )


def found(attacker: str = "plain", *, least: Grade = "faint", **wanted: str) -> Rule:
    """Whether the attack finds images there, and what is found has at `least` this grade."""

    def decide(result: Result) -> Verdict:
        cells = chosen(result, attacker=attacker, **wanted)
        if not cells:
            return Verdict("undecided", "nothing of it was attacked")
        seen = [one for one in cells if leaks(one, result.tried)]
        leaking = [one for one in seen if is_at_least(one, least)]
        # Few images may rank higher on average elsewhere, and be within luck.
        most = max(leaking or seen or cells, key=percentile_of)
        counted = "" if len(cells) == 1 else f"Found in {len(leaking)} of {len(cells)} settings, most of all: "
        said, n = f"{counted}{words(most, result.tried)}.", count_images(cells)
        if leaking:
            return Verdict("holds", said, n)
        if all(map(protects, cells)):
            return Verdict("does not hold", said, n)
        if seen:
            said += f" It is found, but not {least}."
        if least != "faint":
            said += " Other experiments attack other networks."
            return Verdict("undecided", said, n, "longer attacks on wider networks")
        return Verdict("undecided", said, n, images_to_decide(most, result.tried))

    what = "found" if least == "faint" else f"found, and {least}"
    return Rule(
        f"Holds if images are {what}. Does not hold if on average they rank above at most {TOLERANCE:.0%} of others (upper end).",
        decide,
    )


def _diverged(cells: Sequence[Attacked]) -> str:
    """Where most runs ended in no picture at all, nothing found says little."""
    most = sum(2 * one.diverged > one.n for one in cells)
    return f"Behind it most runs diverged in {most} of {len(cells)}. " if most else ""


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
    return f"The papers' figure, PSNR to the shared image, changes by {change.mean:+.1f} dB{interval} on average."
