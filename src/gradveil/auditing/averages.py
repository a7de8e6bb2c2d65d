"""Random policies one by one, averaged: what the papers compare with (`random:each=10`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradveil.auditing.accuracy import Accuracy
from gradveil.auditing.comparisons import attack_keys, spread_by_image
from gradveil.auditing.findings import AttackFindings, Findings
from gradveil.auditing.messages import messages_of
from gradveil.auditing.situation import Situation
from gradveil.auditing.spread import Spread, spread_of
from gradveil.defenses import EachRandom, Random, parse_defense
from gradveil.errors import GradveilError
from gradveil.statistics import clustered_mean_interval


@dataclass(frozen=True)
class MeanAttack:
    """One attack on the same `n` images under every policy; an image's figure is its mean over the policies.

    `percentile` is the mean fraction of decoys that the private image ranks above, with its 95% interval, None where no image
    has a decoy. The spreads are over images, PSNR in dB; their intervals count messages. `by_policy` is the spread of the
    published PSNR over the policies.
    """

    attack: str
    attacker: str
    n: int
    percentile: tuple[float, float, float] | None
    detail: Spread
    psnr: Spread
    published: Spread
    by_policy: Spread
    diverged: int


@dataclass(frozen=True)
class RandomMean:
    """What the policies of `random:each=10` leak on average at one stage of one model, under one threat."""

    name: str
    dataset: str
    model: str
    stage: Situation
    policies: int
    attacks: tuple[MeanAttack, ...]

    @property
    def worst(self) -> MeanAttack:
        """The attack that identifies best on average, of equals that with more detail."""
        return max(self.attacks, key=lambda one: (one.percentile or (0.5,), one.detail.mean))


def group_of(defense: str) -> str | None:
    """The name of the control that a defense is one policy of: `random:member=3` is of `random:each=10`."""
    try:
        found = parse_defense(defense, files=False)
    except GradveilError:  # of somebody's own
        return None
    return str(EachRandom(found.k, found.draw)) if isinstance(found, Random) and found.member is not None else None


def random_means(findings: Sequence[Findings]) -> list[RandomMean]:
    """The mean of every group of random policies, over those that were attacked so far."""
    groups: dict[tuple[str, str, str, Situation], list[Findings]] = {}
    for one in findings:
        if (name := group_of(one.defense)) is not None:
            groups.setdefault((name, *one.setting), []).append(one)
    return [RandomMean(*key, len(own), attacks) for key, own in groups.items() if (attacks := _attacks(own))]


def average_accuracies(accuracies: Sequence[Accuracy]) -> list[Accuracy]:
    """For every group and training seed the mean accuracy of the networks, each trained on its policy."""
    groups: dict[tuple[str, int], list[Accuracy]] = {}
    for one in accuracies:
        if (name := group_of(one.defense)) is not None:
            groups.setdefault((name, one.seed), []).append(one)
    return [
        Accuracy(name, seed, sum(one.accuracy for one in own) / len(own), min(one.test_images for one in own))
        for (name, seed), own in groups.items()
    ]


def _attacks(group: Sequence[Findings]) -> tuple[MeanAttack, ...]:
    """The attacks that all of them went through, on the images that all of them share."""
    found = []
    for key in sorted(attack_keys(group), key=lambda key: (key[1] != "plain", key)):
        each = [next(attack for attack in one.attacks if attack.key == key) for one in group]
        common = sorted(set.intersection(*({image.index for image in one.images} for one in each)))
        if common:
            found.append(_mean_attack(key, each, common))
    return tuple(found)


def _mean_attack(key: tuple[str, str], each: Sequence[AttackFindings], common: Sequence[int]) -> MeanAttack:
    images = [{image.index: image for image in one.images} for one in each]

    def spread(name: str) -> Spread:
        means = {index: sum(getattr(of[index], name) for of in images) / len(images) for index in common}
        return spread_by_image(means, each)

    ranked = [index for index in common if images[0][index].percentile is not None]
    percentiles = [sum(of[index].percentile or 0.0 for of in images) / len(images) for index in ranked]
    messages = messages_of((index, of[index].unit) for of in images for index in ranked)
    interval = clustered_mean_interval(percentiles, [messages[index] for index in ranked]) if ranked else None
    return MeanAttack(
        *key,
        n=len(common),
        percentile=None if interval is None else (sum(percentiles) / len(ranked), *interval),
        detail=spread("detail"),
        psnr=spread("psnr"),
        published=spread("published"),
        by_policy=spread_of([sum(of[index].published for index in common) / len(common) for of in images]),
        diverged=sum(of[index].diverged for of in images for index in common),
    )
