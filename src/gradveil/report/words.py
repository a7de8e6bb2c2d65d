"""What the numbers allow to be said, and no more."""

from dataclasses import dataclass
from typing import Literal

from gradveil.report.groups import Group
from gradveil.scenario import UNDEFENDED
from gradveil.scores import Estimate

# From this PSNR on, a person sees no difference between two small images.
AS_GOOD_AS_EXACT = 30.0

Tone = Literal["leaks", "unclear", "better"]


@dataclass(frozen=True)
class Verdict:
    """One sentence or two on one defense in one setting, with the colour they deserve."""

    defense: str
    tone: Tone
    text: str


def verdicts(group: Group) -> list[Verdict]:
    """A verdict on the undefended gradient and on every defense."""
    bare = group.estimate(UNDEFENDED, lambda record: record.leaked)
    if bare.n == 0:
        return [Verdict(UNDEFENDED, "unclear", "No undefended attack was run, so no defense can be judged here.")]
    return [_undefended(group, bare), *(_defended(group, defense, bare) for defense in group.defenses)]


def decibels(estimate: Estimate) -> str:
    """`12.3 ± 0.4 dB`, or without the spread where one image gives none."""
    return f"{estimate.mean:.1f} dB" if estimate.se is None else f"{estimate.mean:.1f} ± {estimate.se:.1f} dB"


def _undefended(group: Group, gain: Estimate) -> Verdict:
    psnr = group.estimate(UNDEFENDED, lambda record: record.psnr_transformed)
    if _all_exact(group, UNDEFENDED):
        text = f"Everything leaks: every image is rebuilt at {AS_GOOD_AS_EXACT:.0f} dB or better ({decibels(psnr)}, n={psnr.n})."
        return Verdict(UNDEFENDED, "leaks", text)
    if not _clearly_above_zero(gain):
        text = f"The attack fails even without a defense: {decibels(gain)} over a guess of one colour (n={gain.n})."
        return Verdict(UNDEFENDED, "unclear", text)
    text = f"The gradient leaks: the attack beats a guess of one colour by {decibels(gain)} (n={gain.n})."
    return Verdict(UNDEFENDED, "leaks", text)


def _defended(group: Group, defense: str, bare: Estimate) -> Verdict:
    gain = group.estimate(defense, lambda record: record.leaked)
    if gain.n == 0:
        return Verdict(defense, "unclear", "Every run diverged; nothing can be said.")
    psnr = group.estimate(defense, lambda record: record.psnr_leaked)
    if _all_exact(group, defense):
        text = (
            f"The defense does not help: what was shared is rebuilt at {decibels(psnr)} (n={psnr.n}). "
            "It changes which image is given away, not how much of it."
        )
        return Verdict(defense, "leaks", text)
    if not _clearly_above_zero(bare):
        return Verdict(defense, "unclear", "Nothing to protect from here: the attack fails even without a defense.")
    return _compared(group, defense, gain)


def _compared(group: Group, defense: str, gain: Estimate) -> Verdict:
    """A defense against an attack that works without it."""
    saved = group.difference(defense, lambda record: record.leaked)
    private = group.estimate(defense, lambda record: record.gain_original)
    remains = (
        f"{decibels(gain)} over a guess of one colour remain, {decibels(private)} to the private image (n={gain.n})"
    )
    if _clearly_above_zero(saved):
        tone: Tone = "leaks" if _clearly_above_zero(gain) else "better"
        if tone == "better":
            remains = f"what remains cannot be told from a guess of one colour ({decibels(gain)}, n={gain.n})"
        return Verdict(
            defense, tone, f"The defense takes away {decibels(saved)} of the leakage to this attack; {remains}."
        )
    added = Estimate(tuple(-value for value in saved.values), evaluations=0)
    if _clearly_above_zero(added):
        return Verdict(defense, "leaks", f"The defense makes it worse by {decibels(added)}; {remains}.")
    if saved.n == 0:
        return Verdict(defense, "unclear", f"No image was attacked both with and without the defense; {remains}.")
    text = f"{saved.n} images cannot show that the defense changes anything ({decibels(saved)}); {remains}."
    return Verdict(defense, "unclear", text)


def _all_exact(group: Group, defense: str) -> bool:
    psnr = group.estimate(defense, lambda record: record.psnr_leaked)
    return psnr.n > 0 and min(psnr.values) >= AS_GOOD_AS_EXACT


def _clearly_above_zero(estimate: Estimate) -> bool:
    """More than two standard errors above zero; a single image is never clear."""
    return estimate.n > 1 and estimate.se is not None and estimate.mean > 2 * estimate.se
