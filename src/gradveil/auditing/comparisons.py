"""Two defenses on the same images."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradveil.auditing.findings import Findings, worst_gains
from gradveil.auditing.spread import Spread, spread_of
from gradveil.defenses import Random


@dataclass(frozen=True)
class Comparison:
    """Worst-case gain of `reference` minus that of `defense`, in dB and paired by image: positive where `defense` leaks less.

    `references` are how many defenses the reference is the mean of, and `defense` leaks less than `better_than` of them.
    """

    defense: str
    reference: str
    difference: Spread
    references: int
    better_than: int
    text: str


def compare_with_undefended(bare: Findings, defended: Findings) -> Comparison | None:
    """What a defense takes away from the worst case over all attacks; None where no image was attacked both ways."""
    there, here = worst_gains(bare), worst_gains(defended)
    common = sorted(there.keys() & here.keys())
    if not common:
        return None
    difference = spread_of([there[index] - here[index] for index in common])
    if difference.below_zero:
        text = f"More leaks than without it: {_reversed_words(difference)}."
    elif difference.above_zero:
        text = f"It takes away {difference.words()} of what leaks without it."
    else:
        text = f"Statistically tied with no defense: {difference.words()} less leaks."
    return Comparison(defended.defense, bare.defense, difference, 1, int(difference.mean > 0), text)


def compare_with_controls(defended: Findings, controls: Sequence[Findings]) -> Comparison | None:
    """A defense against the mean of random policies, over the attacks that all of them went through; None where there are none.

    The interval is over images: it speaks of the random policies that were sampled, not of all there are.
    """
    keys = {attack.key for attack in defended.attacks}
    for control in controls:
        keys &= {attack.key for attack in control.attacks}
    if not controls or not keys:
        return None
    here, random = worst_gains(defended, keys), [worst_gains(control, keys) for control in controls]
    common = sorted(set(here).intersection(*random))
    if not common:
        return None
    means = [sum(gains[index] for index in common) / len(common) for gains in random]
    own = sum(here[index] for index in common) / len(common)
    difference = spread_of([sum(gains[index] for gains in random) / len(random) - here[index] for index in common])
    # A control is a hybrid of several policies already.
    who = "random policies" if len(random) == 1 else f"{len(random)} draws of random policies"
    if difference.above_zero:
        text = f"Better than {who}: {difference.words()} less leaks than from them on average."
    elif difference.below_zero:
        text = f"Worse than {who}: {_reversed_words(difference)}."
    else:
        text = f"No better than {who}, as far as this shows: {difference.words()} less leaks."
    return Comparison(defended.defense, who, difference, len(random), sum(mean > own for mean in means), text)


def is_control(defense: str) -> bool:
    """Whether a defense is random policies and nothing else; a chain that begins with them is a defense like any other."""
    return defense.partition(":")[0] == Random.name and "|" not in defense


def _reversed_words(difference: Spread) -> str:
    """The difference seen from the other side."""
    assert difference.low is not None
    assert difference.high is not None
    interval = f"95% interval {-difference.high:.1f} to {-difference.low:.1f}, n={difference.n}"
    return f"{-difference.mean:.1f} dB more leaks ({interval})"
