"""Words that follow from numbers, per defense and stage; none of them says that anything is safe."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from gradveil.auditing.comparisons import Comparison, compare_with_controls, compare_with_undefended
from gradveil.auditing.effort import next_try
from gradveil.auditing.findings import Findings
from gradveil.auditing.plan import TOLERANCE
from gradveil.auditing.power import MOST_FIRST, SIGNIFICANT, images_needed
from gradveil.auditing.spread import Spread
from gradveil.leakage.identification import Identification
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.proportions import percent_round_up
from gradveil.statistics import p_in_words

FAILED: Literal["attack failed even without defense"] = "attack failed even without defense"
LEAKS: Literal["leaks"] = "leaks"
PROTECTS: Literal["protects against the attacks tried"] = "protects against the attacks tried"
CANNOT_TELL: Literal["cannot tell at this n"] = "cannot tell at this n"

Level = Literal[
    "attack failed even without defense", "leaks", "protects against the attacks tried", "cannot tell at this n"
]
Tone = Literal["leaks", "unclear", "protects"]
TONES: dict[Level, Tone] = {FAILED: "unclear", LEAKS: "leaks", PROTECTS: "protects", CANNOT_TELL: "unclear"}

Grade = Literal["exact", "recognisable", "faint", "nothing found"]
GRADES: dict[Grade, str] = {
    "exact": "the private image itself is rebuilt",
    "recognisable": "more often than not the right image is picked out of all others of its class",
    "faint": "the right image looks more alike than chance allows, and is picked out less often than not",
    "nothing found": "nothing tells the right image from others of its class",
}
EXACT = 30.0  # dB over the guess without the gradient


@dataclass(frozen=True)
class Verdict:
    """What can be said of one defense at one stage, in a few sentences, and what it rests on.

    `identified` and `detail` (in dB) are at the attacker who identifies best, the former None where no image has a decoy. `p` is
    corrected for all attacks tried.
    `undefended_leaks` is None where there is no undefended attack. `saved` compares with no defense, `control` with random
    policies, both paired by image. `doubts` are what keeps it from "protects". `needed` images would decide, where they can.
    """

    dataset: str
    model: str
    stage: str
    defense: str
    level: Level
    tone: Tone
    grade: Grade
    text: str
    n: int
    identified: Identification | None
    detail: Spread
    p: float
    undefended_leaks: bool | None
    saved: Comparison | None
    control: Comparison | None
    doubts: tuple[str, ...]
    needed: int | None

    @property
    def percentile(self) -> float:
        """The mean percentile; 0.5, which says nothing, where no image has a decoy."""
        return 0.5 if self.identified is None else self.identified.percentile


def words_of_next_try(bare: Findings) -> str:
    """What to try where the attacks fail without a defense, by what was tried."""
    return next_try(bare).words


def verdicts_on(
    findings: Sequence[Findings],
    controls: Collection[str] = (),
    *,
    tolerance: float = TOLERANCE,
    advise: Callable[[Findings], str] = words_of_next_try,
) -> list[Verdict]:
    """A verdict on every finding; `controls` are the defenses that are random policies.

    `advise` says what to try next where the attacks fail without a defense.

    - leaks: some attacker tells the private images from decoys of their class: they rank higher, or are first more often, than
      luck allows. The test is exact and corrected for the number of attacks.
    - attack failed even without defense: none of that without the defense either.
    - protects: the undefended attack leaks; with the defense, no attacker's mean percentile can be above `tolerance`, and none
      has the right image first more often than luck allows, nor can for more than a tenth of the images. Nor is a percentile as
      far below chance.
    - cannot tell: everything else.
    """
    bare = {one.setting: one for one in findings if one.defense == UNDEFENDED}
    random = [one for one in findings if one.defense in controls]
    return [
        _verdict(
            one, bare.get(one.setting), [other for other in random if other.setting == one.setting], tolerance, advise
        )
        for one in findings
    ]


def leaks(findings: Findings) -> bool:
    """Whether some attacker tells the private images from others of their class."""
    return findings.p < SIGNIFICANT


def grade_of(findings: Findings) -> Grade:
    """How much the worst attacker gets, for people."""
    if not leaks(findings) or findings.identified is None:
        return "nothing found"
    # Of most images: the mean over a few exact ones and many that are not is large too.
    if max(attack.detail.quantiles["0.5"] for attack in findings.attacks) > EXACT:
        return "exact"
    first = max(attack.identified.first.fraction for attack in findings.attacks if attack.identified is not None)
    return "recognisable" if first > 0.5 else "faint"


def find_doubts(findings: Findings, bare: Findings, tolerance: float) -> list[str]:
    """Why a defense that does not leak still cannot be said to protect, in words; empty where it can."""
    doubts = []
    for attack in findings.attacks:
        found, who = attack.identified, f"{attack.name}, {attack.attacker} attacker"
        if found is None:
            doubts.append(f"{who}: no image has another of its class to be told from")
            continue
        if found.high > tolerance:
            doubts.append(
                f"{who}: the right image could rank above {found.high:.0%} of the others, more than the {tolerance:.0%} that "
                "are tolerated"
            )
        if found.high < 1 - tolerance:
            # A negative ranks its image last. Who turns it round finds the image.
            doubts.append(
                f"{who}: the right image ranks above only {found.percentile:.0%} of the others ({found.interval}), clearly fewer "
                "than by chance, which tells it from them too"
            )
        if len(findings.attacks) * found.first_p < SIGNIFICANT:
            doubts.append(f"{who}: the right image comes first for {found.first.count} of {found.n} images")
        elif found.first.upper > MOST_FIRST:
            doubts.append(
                f"{who}: the right image could come first for {percent_round_up(found.first.upper)} of images, more than the "
                f"{MOST_FIRST:.0%} that are tolerated"
            )
    if findings.missing_runs:
        doubts.append(f"{findings.missing_runs} runs are missing")
    if untried := sorted(_names(bare) - _names(findings)):
        doubts.append(f"{', '.join(untried)} was tried without the defense only")
    return doubts


def _verdict(
    findings: Findings,
    bare: Findings | None,
    random: Sequence[Findings],
    tolerance: float,
    advise: Callable[[Findings], str],
) -> Verdict:
    undefended = findings.defense == UNDEFENDED
    saved = None if undefended or bare is None else compare_with_undefended(bare, findings)
    control = (
        None
        if undefended or findings.defense in {one.defense for one in random}
        else compare_with_controls(findings, random)
    )
    doubts = [] if undefended or bare is None else find_doubts(findings, bare, tolerance)
    level = level_of(findings, bare, doubts)
    found = findings.identified
    needed = None
    each = [attack.identified for attack in findings.attacks if attack.identified is not None]
    wide = any(one.high > tolerance or one.first.upper > MOST_FIRST for one in each)
    if level == CANNOT_TELL and found is not None and bare is not None and wide:  # for want of images
        # Bounds count messages, so that many are needed, whatever is in them.
        enough = images_needed(found.percentile, tolerance, len(findings.attacks), found.decoys)
        enough *= round(found.n / found.messages)
        needed = enough if enough > found.n else None
    text = _text(findings, bare, level, doubts, needed, tolerance)
    if level == FAILED and bare is not None:
        text += f" Next to try: {advise(bare)}."
    for comparison in (saved if level in (LEAKS, PROTECTS) else None, control if level != FAILED else None):
        text += "" if comparison is None else f" {comparison.text}"
    return Verdict(
        findings.dataset,
        findings.model,
        str(findings.stage),
        findings.defense,
        level,
        TONES[level],
        grade_of(findings),
        text,
        n=findings.n,
        identified=found,
        detail=findings.worst.detail,
        p=findings.p,
        undefended_leaks=None if bare is None else leaks(bare),
        saved=saved,
        control=control,
        doubts=tuple(doubts),
        needed=needed,
    )


def level_of(findings: Findings, bare: Findings | None, doubts: Sequence[str]) -> Level:
    """The verdict in a word; `bare` are the findings without the defense, `doubts` what keeps it from "protects"."""
    if leaks(findings):
        return LEAKS
    if bare is None or findings.identified is None:
        return CANNOT_TELL
    if not leaks(bare):
        return FAILED
    return CANNOT_TELL if doubts else PROTECTS


def _text(
    findings: Findings,
    bare: Findings | None,
    level: Level,
    doubts: Sequence[str],
    needed: int | None,
    tolerance: float,
) -> str:
    grade = grade_of(findings)
    lost = f" {findings.diverged_runs} of {findings.runs} runs diverged." if findings.diverged_runs else ""
    if findings.identified is None:
        return f"Cannot tell: no image has another of its class to be told from.{lost}"
    said = _found(findings, findings.identified)
    more = "" if needed is None else f" About {needed} images would decide."
    if level == LEAKS:
        return f"Leaks ({grade}: {GRADES[grade]}). {said}.{lost}"
    if level == FAILED:
        there = "" if bare is None or bare is findings else f" Without the defense: {_words_of(bare)}."
        return f"Attack failed even without defense, so that nothing is shown of one. {said}.{there}{lost}"
    if bare is None:
        return f"Cannot tell: no undefended attack was run here. {said}.{lost}"
    if level == CANNOT_TELL:
        return f"Cannot tell from {findings.n} images. {said}. {_sentences(doubts)}{lost}{more}"
    knowing = any(attack.attacker != "plain" for attack in findings.attacks)
    unknown = "" if knowing else " No attacker who knows the defense was tried."
    return f"Protects against the {_attacks(findings)} tried, within a tolerance of {tolerance:.0%}. {said}.{unknown}{lost}"


def _found(findings: Findings, found: Identification) -> str:
    """What the attacker who identifies best got, for somebody who has never heard of PSNR."""
    who = " who ignores the defense" if findings.worst.attacker == "plain" else " who knows the defense"
    attacker = f"an attacker{'' if findings.defense == UNDEFENDED else who}"
    corrected = f", corrected for the {_attacks(findings)} tried" if len(findings.attacks) > 1 else ""
    return f"By likeness to what {attacker} rebuilt, {found.words}; {p_in_words(findings.p)}{corrected}"


def _words_of(findings: Findings) -> str:
    found = findings.identified
    return "no image has a decoy" if found is None else f"above {found.percentile:.0%} ({found.interval}, n={found.n})"


def _sentences(doubts: Sequence[str]) -> str:
    return "".join(f"{one[:1].upper()}{one[1:]}. " for one in doubts).rstrip()


def _attacks(findings: Findings) -> str:
    return f"{len(findings.attacks)} attack{'s' if len(findings.attacks) > 1 else ''}"


def _names(findings: Findings) -> set[str]:
    """The attacks without their settings, which may be tuned per defense."""
    return {attack.name for attack in findings.attacks}
