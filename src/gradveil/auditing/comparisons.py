"""Two defenses on the same images."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gradveil.auditing.findings import AttackFindings, Findings, worst_of
from gradveil.auditing.messages import messages_of
from gradveil.auditing.spread import Spread, spread_of
from gradveil.defenses import Random


@dataclass(frozen=True)
class Comparison:
    """Percentile under `reference` minus that under `defense`, paired by image: positive where `defense` leaks less.

    Each is attacked by whoever identifies best behind it, among the attacks that both went through. `references` are how many
    defenses the reference is the mean of, and `defense` leaks less than `better_than` of them.
    """

    defense: str
    reference: str
    difference: Spread
    references: int
    better_than: int
    text: str


def compare_with_undefended(bare: Findings, defended: Findings) -> Comparison | None:
    """What a defense changes; None where no image was attacked both ways.

    Over the attacks that both went through by name: their settings may be tuned per defense, and undefended there is nothing
    to know.
    """
    names = {attack.name for attack in bare.attacks} & {attack.name for attack in defended.attacks}
    if not names:
        return None
    attacks = [worst_of([attack for attack in one.attacks if attack.name in names]) for one in (defended, bare)]
    here, there = (attack.percentiles for attack in attacks)
    common = sorted(there.keys() & here.keys())
    if not common:
        return None
    difference = spread_by_image({index: there[index] - here[index] for index in common}, attacks)
    text = (
        f"Without it the right image ranks above {_mean(there, common):.0%} of the others, with it above "
        f"{_mean(here, common):.0%}"
    )
    return Comparison(
        defended.defense, bare.defense, difference, 1, int(difference.mean > 0), f"{text}{_clearly(difference)}."
    )


def compare_with_controls(defended: Findings, controls: Sequence[Findings]) -> Comparison | None:
    """A defense against the mean of random policies, over the attacks that all of them went through; None where there are none.

    The interval is over images: it speaks of the random policies that were sampled, not of all there are.
    """
    keys = attack_keys([defended, *controls])
    if not controls or not keys:
        return None
    attacks = [worst_among(one, keys) for one in (defended, *controls)]
    here, *random = (attack.percentiles for attack in attacks)
    common = sorted(set(here).intersection(*random))
    if not common:
        return None
    own, means = _mean(here, common), [_mean(one, common) for one in random]
    differences = {index: sum(one[index] for one in random) / len(random) - here[index] for index in common}
    difference = spread_by_image(differences, attacks)
    # A control is a hybrid of several policies, or one of several that stand by themselves.
    alone = all(is_one_policy(control.defense) for control in controls)
    several = f"{len(random)} random policies on average" if alone else f"{len(random)} draws of random policies"
    who = "random policies" if len(random) == 1 else several
    figures = f"there the right image ranks above {sum(means) / len(means):.0%} of the others, here above {own:.0%}"
    if difference.above_zero:
        text = f"Better than {who}: {figures}{_clearly(difference)}."
    elif difference.below_zero:
        text = f"Worse than {who}: {figures}{_clearly(difference)}."
    else:
        text = f"No better than {who}, as far as this shows: {figures}{_clearly(difference)}."
    return Comparison(defended.defense, who, difference, len(random), sum(mean > own for mean in means), text)


def attack_keys(findings: Sequence[Findings]) -> set[tuple[str, str]]:
    """The attacks that all of them went through."""
    return set.intersection(*({attack.key for attack in one.attacks} for one in findings))


def worst_among(findings: Findings, keys: Collection[tuple[str, str]]) -> AttackFindings:
    """The attack with one of these keys that identifies best."""
    return worst_of([attack for attack in findings.attacks if attack.key in keys])


def spread_by_image(values: Mapping[int, float], attacks: Sequence[AttackFindings]) -> Spread:
    """The spread of what is computed of images from all of these attacks, its interval over messages."""
    attacked = ((image.index, image.unit) for attack in attacks for image in attack.images if image.index in values)
    messages = messages_of(attacked)
    return spread_of(list(values.values()), [messages[index] for index in values])


def is_control(defense: str) -> bool:
    """Whether a defense is random policies and nothing else; a chain that begins with them is a defense like any other."""
    return defense.partition(":")[0] == Random.name and "|" not in defense


def is_one_policy(defense: str) -> bool:
    """Whether a defense is one of several random policies that stand by themselves, such as `random:member=3`."""
    return is_control(defense) and "member=" in defense


def _mean(percentiles: dict[int, float], indices: Sequence[int]) -> float:
    return sum(percentiles[index] for index in indices) / len(indices)


def _clearly(difference: Spread) -> str:
    """Whether a difference is clear, with its interval in percentage points."""
    if difference.low is None or difference.high is None:
        return f" ({difference.counted})"
    sure = "a clear difference" if difference.above_zero or difference.below_zero else "no clear difference"
    low, high = 100 * difference.low, 100 * difference.high
    return f" ({sure}: 95% interval {round(low):+d} to {round(high):+d} points, {difference.counted})"
