"""Words that follow from numbers, per defense and stage; none of them says that anything is safe."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from gradveil.audit.comparisons import Comparison, compare_with_controls, compare_with_undefended
from gradveil.audit.findings import Findings
from gradveil.audit.proportions import Proportion, percent_round_up, proportion
from gradveil.audit.spread import Spread
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

    `undefended_works` is None where no undefended attack, or only one image, says so. `saved` is undefended minus defended gain,
    `control` the comparison with random policies, both paired by image. `standing_out` are the images with a gain of 3 dB or
    more, with an exact bound on their share that needs no bell curve. `doubts` are what keeps it from "protects".
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


def verdicts_on(found: Sequence[Findings], controls: Collection[str] = ()) -> list[Verdict]:
    """A verdict on every finding; `controls` are the defenses that are random policies.

    - leaks: the worst case over attacks, averaged over images, is clearly above the null (lower end of its 95% interval above
      0), or some image reaches the smallest eps and its null does not, or reconstructions pick the right image
      more often than chance.
    - attack failed even without defense: none of that without the defense either.
    - protects: the undefended attack works, none of that with the defense, and no doubt is left: see `doubts`.
    - cannot tell: everything else.
    """
    bare = {one.setting: one for one in found if one.defense == UNDEFENDED}
    random = [one for one in found if one.defense in controls]
    return [
        _verdict(one, bare.get(one.setting), [other for other in random if other.setting == one.setting])
        for one in found
    ]


def attack_works(found: Findings) -> bool | None:
    """Whether the attacks clearly get something; None where a single image cannot say."""
    if signs_of_leakage(found):
        return True
    return None if found.n < 2 else False


def signs_of_leakage(found: Findings) -> list[str]:
    """What shows that something leaks, in words; empty where nothing does."""
    gain, said = found.spreads.gain, []
    if gain.above_zero:
        said.append(f"the worst case over {_attacks(found)} beats a guess of one colour by {gain.words()}{_sd(gain)}")
    if found.success and found.success[0].beyond_null:
        said.append(found.success[0].text)
    if found.identified is not None and found.identified.above_chance:
        said.append(found.identified.text)
    return said


def doubts(found: Findings, bare: Findings, gone: Comparison | None) -> list[str]:
    """What keeps an attack that shows no sign of success from being called fended off, in words.

    The worst case has to lie below the null with the whole interval of its mean, clearly below the undefended one on the same
    images, without a single image that stands out, on enough images, with all attacks run to their end.
    """
    gain, said = found.spreads.gain, []
    if found.n < LEAST_IMAGES:
        said.append(f"{found.n} images are too few, {LEAST_IMAGES} would do")
    if gain.high is None or gain.high > 0:
        said.append("the mean could still be above that of one colour")
    if found.worst[0].gain >= STANDS_OUT:
        said.append(f"image {found.worst[0].index} alone leaks {found.worst[0].gain:.1f} dB over one colour")
    if gone is None or gone.difference.n < min(LEAST_IMAGES, found.n):
        said.append("too few of the images were attacked without the defense as well")
    elif not gone.difference.above_zero:
        said.append("the undefended attack is not clearly better on the same images")
    if found.diverged > MOST_DIVERGED * found.n:
        said.append(f"every run diverged for {found.diverged} of {found.n} images")
    if found.missing_runs:
        said.append(f"{found.missing_runs} runs are missing")
    if untried := sorted(_names(bare) - _names(found)):
        said.append(f"{', '.join(untried)} was tried without the defense only")
    return said


def _verdict(found: Findings, bare: Findings | None, random: Sequence[Findings]) -> Verdict:
    undefended = found.defense == UNDEFENDED
    gone = None if undefended or bare is None else compare_with_undefended(bare, found)
    control = (
        None if undefended or found.defense in {one.defense for one in random} else compare_with_controls(found, random)
    )
    working = None if bare is None else attack_works(bare)
    kept = [] if undefended or bare is None else doubts(found, bare, gone)
    level, text = _level_and_text(found, bare, working, kept)
    if gone is not None and level in (LEAKS, PROTECTS):
        text += f" {gone.text}"
    if control is not None:
        text += f" {control.text}"
    return Verdict(
        found.dataset,
        found.model,
        str(found.stage),
        found.defense,
        level,
        TONES[level],
        text,
        n=found.n,
        gain=found.spreads.gain,
        undefended=None if bare is None else bare.spreads.gain,
        undefended_works=working,
        saved=gone,
        control=control,
        standing_out=_standing_out(found),
        doubts=tuple(kept),
    )


def _level_and_text(
    found: Findings, bare: Findings | None, working: bool | None, kept: Sequence[str]
) -> tuple[Level, str]:
    gain = found.spreads.gain
    lost = f" {found.diverged_runs} of {found.runs} runs diverged and count as failed." if found.diverged_runs else ""
    if leaking := signs_of_leakage(found):
        mean = "" if gain.above_zero else f"; on average {_over_one_colour(found)}"
        return LEAKS, f"Leaks: {'; '.join(leaking)}{mean}.{lost}"
    if bare is None:
        return (
            CANNOT_TELL,
            f"Cannot tell: no undefended attack was run here; with the defense {_over_one_colour(found)}.{lost}",
        )
    if working is None:
        return CANNOT_TELL, f"Cannot tell: a single image says nothing of the others; it gains {gain.words()}.{lost}"
    if not working:
        there = f"the worst case over {_attacks(bare)} is {_over_one_colour(bare)}"
        here = "" if found.defense == UNDEFENDED else f"; with it {gain.words()}, which shows nothing"
        return FAILED, f"Attack failed even without defense: {there}{here}.{lost}"
    if kept:
        return CANNOT_TELL, f"Cannot tell from {_over_one_colour(found)}: {'; '.join(kept)}.{lost}"
    room = (
        f"none gains {STANDS_OUT:g} dB, at 95% confidence fewer than {percent_round_up(_standing_out(found).upper)} do"
    )
    bound = f"; {found.success[0].text}" if found.success else ""
    knowing = any(attack.attacker != "plain" for attack in found.attacks)
    unknown = "" if knowing else " No attacker who knows the defense was tried."
    return PROTECTS, (
        f"Protects against the {_attacks(found)} tried: the worst case stays below a guess of one colour, "
        f"{gain.words()}{_sd(gain)}; {room}{bound}.{unknown}{lost}"
    )


def _standing_out(found: Findings) -> Proportion:
    return proportion(sum(one.gain >= STANDS_OUT for one in found.images), found.n)


def _over_one_colour(found: Findings) -> str:
    gain = found.spreads.gain
    return f"{gain.words()} over one colour{_sd(gain)}"


def _attacks(found: Findings) -> str:
    return f"{len(found.attacks)} attack{'s' if len(found.attacks) > 1 else ''}"


def _names(found: Findings) -> set[str]:
    """The attacks without their settings, which may be tuned per defense."""
    return {attack.attack.split(",")[0] for attack in found.attacks}


def _sd(gain: Spread) -> str:
    return "" if gain.sd is None else f", {gain.sd:.1f} dB from image to image"
