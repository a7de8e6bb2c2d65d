"""Words that follow from numbers, per defense and stage; none of them says that anything is safe."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from gradveil.auditing.comparisons import Comparison, compare_with_controls, compare_with_undefended
from gradveil.auditing.findings import Findings
from gradveil.auditing.proportions import Proportion, percent_round_up, proportion
from gradveil.auditing.spread import Spread
from gradveil.leakage.scenario import UNDEFENDED

FAILED: Literal["attack failed even without defense"] = "attack failed even without defense"
LEAKS: Literal["leaks"] = "leaks"
PROTECTS: Literal["protects against the attacks tried, at this n"] = "protects against the attacks tried, at this n"
CANNOT_TELL: Literal["cannot tell at this n"] = "cannot tell at this n"

Level = Literal[
    "attack failed even without defense",
    "leaks",
    "protects against the attacks tried, at this n",
    "cannot tell at this n",
]
Tone = Literal["leaks", "unclear", "protects"]
TONES: dict[Level, Tone] = {FAILED: "unclear", LEAKS: "leaks", PROTECTS: "protects", CANNOT_TELL: "unclear"}

# With fewer, even an attack that reaches nobody leaves room for a third of all images.
LEAST_IMAGES = 8
# Half the squared error of the best single colour: one such image is more than bad luck.
STANDS_OUT = 3.0
MOST_DIVERGED = 0.1


@dataclass(frozen=True)
class Verdict:
    """What can be said of one defense at one stage, in one or two sentences, and what it rests on.

    `undefended_works` is None where there is no undefended attack, or only one image. `saved` is the undefended minus the
    defended gain, paired by image. `control` is the comparison with random policies, paired too. `standing_out` are the images
    with a gain of 3 dB or more; the bound on their fraction is exact. `doubts` are what keeps it from "protects".
    """

    dataset: str
    model: str
    stage: str
    defense: str
    level: Level
    tone: Tone
    text: str
    n: int
    gain: Spread
    undefended: Spread | None
    undefended_works: bool | None
    saved: Comparison | None
    control: Comparison | None
    standing_out: Proportion
    doubts: tuple[str, ...]


def verdicts_on(findings: Sequence[Findings], controls: Collection[str] = ()) -> list[Verdict]:
    """A verdict on every finding; `controls` are the defenses that are random policies.

    - leaks: the worst case over attacks, averaged over images, is clearly above the null (lower end of its 95% interval above
      0), or some image reaches the smallest eps and its null does not, or reconstructions pick the right image
      more often than chance.
    - attack failed even without defense: none of that without the defense either.
    - protects: the undefended attack works, none of that with the defense, and no doubt is left: see `doubts`.
    - cannot tell: everything else.
    """
    bare = {one.setting: one for one in findings if one.defense == UNDEFENDED}
    random = [one for one in findings if one.defense in controls]
    return [
        _verdict(one, bare.get(one.setting), [other for other in random if other.setting == one.setting])
        for one in findings
    ]


def attack_works(findings: Findings) -> bool | None:
    """Whether the attacks clearly get something; None where a single image cannot say."""
    if signs_of_leakage(findings):
        return True
    return None if findings.n < 2 else False


def signs_of_leakage(findings: Findings) -> list[str]:
    """What shows that something leaks, in words; empty where nothing does."""
    gain, signs = findings.spreads.gain, []
    if gain.above_zero:
        signs.append(
            f"the worst case over {_attacks(findings)} beats a guess of one colour by {gain.words()}{_sd(gain)}"
        )
    if findings.success and findings.success[0].beyond_null:
        signs.append(findings.success[0].text)
    if findings.identified is not None and findings.identified.above_chance:
        signs.append(findings.identified.text)
    return signs


def find_doubts(findings: Findings, bare: Findings, saved: Comparison | None) -> list[str]:
    """Why a defense without signs of leakage still cannot be said to protect, in words; empty where it can.

    The images have to be enough. The whole interval of the mean gain has to lie below 0, and the gain clearly below the
    undefended one on the same images. No image may stand out. All attacks have to be run to their end.
    """
    gain, doubts = findings.spreads.gain, []
    if findings.n < LEAST_IMAGES:
        doubts.append(f"{findings.n} images are too few, at least {LEAST_IMAGES} are needed")
    if gain.high is None or gain.high > 0:
        doubts.append("the mean could still be above that of one colour")
    if findings.worst[0].gain >= STANDS_OUT:
        doubts.append(f"image {findings.worst[0].index} alone leaks {findings.worst[0].gain:.1f} dB over one colour")
    if saved is None or saved.difference.n < min(LEAST_IMAGES, findings.n):
        doubts.append("too few of the images were attacked without the defense as well")
    elif not saved.difference.above_zero:
        doubts.append("the undefended attack is not clearly better on the same images")
    if findings.diverged > MOST_DIVERGED * findings.n:
        doubts.append(f"every run diverged for {findings.diverged} of {findings.n} images")
    if findings.missing_runs:
        doubts.append(f"{findings.missing_runs} runs are missing")
    if untried := sorted(_names(bare) - _names(findings)):
        doubts.append(f"{', '.join(untried)} was tried without the defense only")
    return doubts


def _verdict(findings: Findings, bare: Findings | None, random: Sequence[Findings]) -> Verdict:
    undefended = findings.defense == UNDEFENDED
    saved = None if undefended or bare is None else compare_with_undefended(bare, findings)
    control = (
        None
        if undefended or findings.defense in {one.defense for one in random}
        else compare_with_controls(findings, random)
    )
    working = None if bare is None else attack_works(bare)
    doubts = [] if undefended or bare is None else find_doubts(findings, bare, saved)
    level, text = _level_and_text(findings, bare, working, doubts)
    if saved is not None and level in (LEAKS, PROTECTS):
        text += f" {saved.text}"
    if control is not None:
        text += f" {control.text}"
    return Verdict(
        findings.dataset,
        findings.model,
        str(findings.stage),
        findings.defense,
        level,
        TONES[level],
        text,
        n=findings.n,
        gain=findings.spreads.gain,
        undefended=None if bare is None else bare.spreads.gain,
        undefended_works=working,
        saved=saved,
        control=control,
        standing_out=_standing_out(findings),
        doubts=tuple(doubts),
    )


def _level_and_text(
    findings: Findings, bare: Findings | None, working: bool | None, doubts: Sequence[str]
) -> tuple[Level, str]:
    gain = findings.spreads.gain
    lost = (
        f" {findings.diverged_runs} of {findings.runs} runs diverged and count as failed."
        if findings.diverged_runs
        else ""
    )
    if leaking := signs_of_leakage(findings):
        mean = "" if gain.above_zero else f"; on average {_over_one_colour(findings)}"
        return LEAKS, f"Leaks: {'; '.join(leaking)}{mean}.{lost}"
    if bare is None:
        return (
            CANNOT_TELL,
            f"Cannot tell: no undefended attack was run here; with the defense {_over_one_colour(findings)}.{lost}",
        )
    if working is None:
        return CANNOT_TELL, f"Cannot tell: a single image says nothing of the others; it gains {gain.words()}.{lost}"
    if not working:
        there = f"the worst case over {_attacks(bare)} is {_over_one_colour(bare)}"
        here = "" if findings.defense == UNDEFENDED else f"; with it {gain.words()}, which shows nothing"
        return FAILED, f"Attack failed even without defense: {there}{here}.{lost}"
    if doubts:
        return CANNOT_TELL, f"Cannot tell from {_over_one_colour(findings)}: {'; '.join(doubts)}.{lost}"
    room = f"none gains {STANDS_OUT:g} dB, at 95% confidence fewer than {percent_round_up(_standing_out(findings).upper)} do"
    bound = f"; {findings.success[0].text}" if findings.success else ""
    knowing = any(attack.attacker != "plain" for attack in findings.attacks)
    unknown = "" if knowing else " No attacker who knows the defense was tried."
    return PROTECTS, (
        f"Protects against the {_attacks(findings)} tried: the worst case stays below a guess of one colour, "
        f"{gain.words()}{_sd(gain)}; {room}{bound}.{unknown}{lost}"
    )


def _standing_out(findings: Findings) -> Proportion:
    return proportion(sum(one.gain >= STANDS_OUT for one in findings.images), findings.n)


def _over_one_colour(findings: Findings) -> str:
    gain = findings.spreads.gain
    return f"{gain.words()} over one colour{_sd(gain)}"


def _attacks(findings: Findings) -> str:
    return f"{len(findings.attacks)} attack{'s' if len(findings.attacks) > 1 else ''}"


def _names(findings: Findings) -> set[str]:
    """The attacks without their settings, which may be tuned per defense."""
    return {attack.name for attack in findings.attacks}


def _sd(gain: Spread) -> str:
    return "" if gain.sd is None else f", {gain.sd:.1f} dB from image to image"
