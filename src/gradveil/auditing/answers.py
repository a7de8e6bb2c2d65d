"""The three questions a reader has: do I leak, what helps most, and what does that cost?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradveil.auditing.comparisons import is_control
from gradveil.auditing.messages import in_messages
from gradveil.auditing.study import DefenseSummary, Study
from gradveil.auditing.verdicts import CANNOT_TELL, FAILED, LEAKS, PROTECTS, Grade, Level, Tone, Verdict
from gradveil.defenses.words import defense_in_words
from gradveil.leakage.identification import Identification
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.statistics import p_in_words

CHEAP = 0.02  # of accuracy: what surely costs no more is shown as good news
LEAK, HELP, COST = "Do I leak?", "What helps most?", "What does it cost?"
_BEST_FIRST: tuple[Level, ...] = (PROTECTS, CANNOT_TELL, LEAKS)
_LEAKING: dict[Grade, str] = {"exact": "Yes, exactly.", "recognisable": "Yes.", "faint": "Yes, faintly."}


@dataclass(frozen=True)
class Answer:
    """An answer in two or three words and a sentence or two; `figure` is the number behind it and `interval` its 95% interval.

    Both are empty where nothing was measured. `unit` is a sentence that says what the figure is. `defense` is the one it speaks
    of. `shade` is what it is coloured by: the grade of a leak, or a tone.
    """

    question: str
    short: str
    text: str
    shade: Grade | Tone
    figure: str = ""
    interval: str = ""
    unit: str = ""
    defense: str | None = None


def answers_of(study: Study, dataset: str, model: str) -> tuple[Answer, Answer, Answer]:
    """Do I leak, what helps most, what does it cost: of one network."""
    summaries = study.summaries[dataset, model]
    bare = next((one for one in summaries if one.overall.defense == UNDEFENDED), None)
    tried = defenses_of(summaries)
    best = most_helpful(summaries)
    leak = _leak(bare)
    leak = replace(leak, text=f"{leak.text}{_deployed(study, dataset, model)}")
    return leak, _help(bare, tried, best), _cost(study, dataset, model, bare, best)


def defenses_of(summaries: Sequence[DefenseSummary]) -> list[DefenseSummary]:
    """The defenses without what they are compared with: no defense, and random policies."""
    return [one for one in summaries if one.overall.defense != UNDEFENDED and not is_control(one.overall.defense)]


def most_helpful(summaries: Sequence[DefenseSummary]) -> DefenseSummary | None:
    """The defense that clearly lowers the leak; None where none does.

    One that protects comes before one that cannot be judged, and that before one that leaks. Of those of one kind that the
    lowest figure does not clearly beat, it is the one that costs least.
    """
    helping = [one for one in defenses_of(summaries) if _saves(one) and one.overall.level != FAILED]
    if not helping:
        return None
    level = min((one.overall.level for one in helping), key=_BEST_FIRST.index)
    helping = [one for one in helping if one.overall.level == level]
    lowest = min(one.worst.percentile for one in helping)
    tied = [one for one in helping if one.worst.identified is not None and one.worst.identified.low <= lowest]
    return min(tied or helping, key=lambda one: (_price(one), one.worst.percentile))


def _price(one: DefenseSummary) -> float:
    return math.inf if one.loss is None else one.loss.loss


def _saves(one: DefenseSummary) -> bool:
    return one.overall.level == PROTECTS or (one.worst.saved is not None and one.worst.saved.difference.above_zero)


def _leak(bare: DefenseSummary | None) -> Answer:
    if bare is None:
        return Answer(LEAK, "Not tested.", "No gradient was attacked without a defense.", "unclear")
    found = bare.worst.identified
    if found is None:
        return Answer(LEAK, "Cannot tell.", "No image has another of its class to be told from.", "unclear")
    if bare.overall.level == LEAKS:
        short, text = _LEAKING[bare.overall.grade], _what_leaks(bare.overall.grade, found, bare.worst.p)
    else:
        short, text = "No leak found.", "The attacks tried get nothing, even without a defense. Others may do better."
    return Answer(LEAK, short, text, bare.overall.grade if bare.overall.level == LEAKS else "unclear", *_rank(found))


def _what_leaks(grade: Grade, found: Identification, p: float) -> str:
    if grade == "exact":
        return "The private images themselves are rebuilt."
    picked = f"picked out of all others of its class {found.first.count} of {found.n} times."
    if grade == "recognisable":
        return f"The right image is {picked}"
    return f"The right image ranks higher than chance explains ({p_in_words(p)}). It is {picked}"


def _deployed(study: Study, dataset: str, model: str) -> str:
    """What is left of it under the last of several threats, the one closest to what is deployed; empty where there is one."""
    steps = study.steps.get((dataset, model))
    verdict = steps[-1].verdicts.get(UNDEFENDED) if steps else None
    if not steps or verdict is None:
        return ""
    found = verdict.identified
    counted = f"{verdict.n} images{'' if found is None else in_messages(found.n, found.messages)}"
    what = f"it leaks, too ({verdict.grade})" if verdict.level == LEAKS else f"nothing was found of {counted}"
    return f" That is the worst of {len(steps)} threats. In the last of them, {steps[-1].threat}, {what}."


def _help(bare: DefenseSummary | None, tried: Sequence[DefenseSummary], best: DefenseSummary | None) -> Answer:
    if not tried:
        return Answer(HELP, "Not tested.", "No defense was attacked here.", "unclear")
    if bare is None:
        return Answer(HELP, "Cannot tell.", "Without an undefended attack there is nothing to compare with.", "unclear")
    if bare.overall.level != LEAKS:
        return Answer(HELP, "Cannot tell.", "Where nothing leaks, no defense can be tested.", "unclear")
    if best is None:
        lowest = min(tried, key=lambda one: one.worst.percentile)
        which = (
            f"{name(lowest)}, the only defense tried, makes no clear difference."
            if len(tried) == 1
            else f"None of {len(tried)} defenses makes a clear difference. Lowest is {defense_in_words(lowest.overall.defense)}."
        )
        return Answer(
            HELP, "Nothing that was tried.", which, bare.overall.grade, *_fall(bare, lowest), lowest.overall.defense
        )
    verdict = best.worst
    if best.overall.level == PROTECTS:
        said = "It protects against the attacks tried."
    elif best.overall.level == LEAKS:
        said = f"It helps, and still leaks ({best.overall.grade})."
    else:
        said = _undecided(verdict)
    text = f"{said}{_against_random(verdict)}"
    shade: Grade | Tone = "protects" if best.overall.level == PROTECTS else "faint"
    return Answer(HELP, f"{name(best)}.", text, shade, *_fall(bare, best), best.overall.defense)


def _cost(study: Study, dataset: str, model: str, bare: DefenseSummary | None, best: DefenseSummary | None) -> Answer:
    if best is None:
        none = bare is not None and bare.overall.level != LEAKS
        why = (
            "No leak was found that a defense could mend." if none else "None of the defenses tried was shown to help."
        )
        return Answer(COST, "Does not apply.", why, "unclear")
    if best.loss is not None:
        loss = best.loss
        text = f"Test accuracy is {100 * loss.accuracy:.1f}% with it and {100 * loss.undefended:.1f}% without."
        if loss.low <= 0 < loss.high:
            text += " The difference may be chance."
        clear = "It costs accuracy." if loss.low > 0 else "Uncertain." if loss.high > 0 else "It costs nothing."
        shade: Tone | Grade = "faint" if loss.low > 0 else "unclear" if loss.high > CHEAP else "protects"
        interval = f"{points(loss.low)} to {points(loss.high)}"
        return Answer(COST, clear, text, shade, f"{points(loss.loss)} points lost", interval)
    note = study.no_cost(dataset, model)
    if note is not None:
        return Answer(COST, "Cannot tell.", f"{note[:1].upper()}{note[1:]}.", "unclear")
    return Answer(COST, "Not measured.", "No network was trained with this defense and without.", "unclear")


def name(one: DefenseSummary) -> str:
    """The defense in words, its first letter large."""
    words = defense_in_words(one.overall.defense)
    return words[:1].upper() + words[1:]


def points(fraction: float) -> str:
    """A difference of accuracies in percentage points, `2.2`, with a real minus."""
    return f"{round(100 * fraction, 1) + 0.0:.1f}".replace("-", "\N{MINUS SIGN}")


def _rank(found: Identification | None) -> tuple[str, str, str]:
    """Figure, interval and unit of an answer; empty where no image has a decoy."""
    if found is None:
        return "", "", ""
    figure = f"{found.percentile:.0%}"
    unit = f"The right image ranks above {figure} of the others of its class, on average (95% interval, {_counted(found)})."
    return figure, found.interval, unit


def _fall(bare: DefenseSummary, one: DefenseSummary) -> tuple[str, str, str]:
    """As `_rank`, from what it is without the defense."""
    found, before = one.worst.identified, f"{bare.worst.percentile:.0%}"
    if found is None:
        return "", "", ""
    after, interval, _ = _rank(found)
    unit = f"The right image ranks above {after} of the others with it, {before} without (95% interval, {_counted(found)})."
    return f"{before} \N{RIGHTWARDS ARROW} {after}", interval, unit


def _counted(found: Identification) -> str:
    return f"n={found.n}{in_messages(found.n, found.messages)}"


def _undecided(verdict: Verdict) -> str:
    more = "" if verdict.needed is None else f"; about {verdict.needed} would decide"
    return f"It helps. Whether it protects cannot be told from {verdict.n} images{more}."


def _against_random(verdict: Verdict) -> str:
    if verdict.control is None or verdict.control.difference.above_zero:
        return ""
    return " It is not clearly better than random policies."
