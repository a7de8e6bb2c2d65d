"""What a defense costs: gamma, the accuracy it takes away."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gradveil.errors import GradveilError
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.proportions import exact_interval, newcombe
from gradveil.statistics import CONFIDENCE, mean_interval

# A training that came less than this part of the way from chance to always right has learned nothing to lose.
LEARNED = 0.1

# `seeds`: paired by training seed; `other seeds`: several on either side without pairs; `test set`: one training each.
Source = Literal["seeds", "other seeds", "test set"]

_SOURCES: dict[Source, str] = {
    "seeds": "over {seeds} training seeds, each with and without the defense",
    "other seeds": "over {seeds} trainings with other seeds than those without the defense",
    "test set": "from the {images} test images alone: one training each, so what another seed would change is not in it",
}


@dataclass(frozen=True)
class Accuracy:
    """The fraction of `test_images`, of so many `classes`, that a network trained with `defense` and `seed` gets right.

    Older files do not say how many classes there are.
    """

    defense: str
    seed: int
    accuracy: float
    test_images: int
    classes: int | None = None

    def __post_init__(self) -> None:
        if self.classes is not None and not 1 <= self.classes < 2**31:
            raise GradveilError(f"expected one class or more, got {str(self.classes)[:40]}")
        if not 0 <= self.accuracy <= 1 or not 1 <= self.test_images < 2**31:
            raise GradveilError(
                f"an accuracy lies between 0 and 1 and has test images, got {self.accuracy} on {str(self.test_images)[:40]}"
            )


@dataclass(frozen=True)
class AccuracyLoss:
    """Accuracy without the defense minus accuracy with it, all in [0, 1]; `low`..`high` is its 95% interval.

    `source` says what the interval is over. `gamma` is the smallest loss that can be claimed: the upper end, at least 0.
    """

    defense: str
    accuracy: float
    undefended: float
    loss: float
    low: float
    high: float
    gamma: float
    seeds: int
    test_images: int
    source: Source
    text: str


def accuracy_loss(accuracies: Sequence[Accuracy], defense: str) -> AccuracyLoss | None:
    """The loss of one defense; None where it, or no defense, was not trained, or the latter learned nothing to lose.

    With two seeds or more in common, the interval is Student's, of the paired differences. With two or more on either side
    but no pairs, it is Welch's. Else it is that of the finite test set for one pair of trainings (Newcombe).
    """
    bare, defended = _by_seed(accuracies, UNDEFENDED), _by_seed(accuracies, defense)
    if not bare or not defended or near_chance(accuracies) is not None:
        return None
    common = sorted(bare.keys() & defended.keys())
    paired = mean_interval([bare[seed].accuracy - defended[seed].accuracy for seed in common])
    if paired is not None:
        bare, defended = {seed: bare[seed] for seed in common}, {seed: defended[seed] for seed in common}
        return _loss(defense, bare, defended, *paired, "seeds")
    if len(bare) > 1 and len(defended) > 1:
        return _loss(defense, bare, defended, *_welch(_values(bare), _values(defended)), "other seeds")
    first, second = bare[min(common or bare)], defended[min(common or defended)]
    low, high = newcombe(first.accuracy, first.test_images, second.accuracy, second.test_images)
    return _loss(defense, {first.seed: first}, {second.seed: second}, low, high, "test set")


def accuracy_losses(accuracies: Sequence[Accuracy]) -> list[AccuracyLoss]:
    """The losses of all defenses that were trained, in the order in which they come."""
    names = dict.fromkeys(one.defense for one in accuracies if one.defense != UNDEFENDED)
    return [loss for name in names if (loss := accuracy_loss(accuracies, name)) is not None]


def near_chance(accuracies: Sequence[Accuracy]) -> str | None:
    """Why no cost can be computed, in words, where the trainings without a defense are hardly better than guessing."""
    bare = _by_seed(accuracies, UNDEFENDED).values()
    classes = {one.classes for one in bare if one.classes is not None}
    if not classes:
        return None
    chance, reached = 1 / max(classes), float(np.mean([one.accuracy for one in bare]))
    if reached >= chance + LEARNED * (1 - chance):
        return None
    return (
        f"without a defense the training reaches {100 * reached:.1f}%, and guessing {100 * chance:.1f}%: there is no accuracy "
        "to lose yet"
    )


@dataclass(frozen=True)
class MeasuredAccuracy:
    """The mean accuracy with one defense over `seeds` trainings, with a 95% interval (`accuracy_interval`)."""

    defense: str
    accuracy: float
    low: float
    high: float
    seeds: int
    test_images: int

    @property
    def words(self) -> str:
        """`88.4% (95% interval 87.0 to 89.8)`."""
        return f"{100 * self.accuracy:.1f}% (95% interval {100 * self.low:.1f} to {100 * self.high:.1f})"


def measured_accuracies(accuracies: Sequence[Accuracy]) -> dict[str, MeasuredAccuracy]:
    """By defense, no defense included, in the order in which they come."""
    names = dict.fromkeys(one.defense for one in accuracies)
    own = {name: [one for one in accuracies if one.defense == name] for name in names}
    return {
        name: MeasuredAccuracy(name, *accuracy_interval(found), len(found), min(one.test_images for one in found))
        for name, found in own.items()
    }


def accuracy_interval(accuracies: Sequence[Accuracy]) -> tuple[float, float, float]:
    """Mean and 95% interval: over seeds where there are several, else what the finite test set gives (Clopper-Pearson)."""
    values = [one.accuracy for one in accuracies]
    over_seeds = mean_interval(values)
    if over_seeds is not None:
        return float(np.mean(values)), max(0.0, over_seeds[0]), min(1.0, over_seeds[1])
    (one,) = accuracies
    return one.accuracy, *exact_interval(round(one.accuracy * one.test_images), one.test_images)


def _loss(
    defense: str, bare: dict[int, Accuracy], defended: dict[int, Accuracy], low: float, high: float, source: Source
) -> AccuracyLoss:
    without, within = float(np.mean(_values(bare))), float(np.mean(_values(defended)))
    low, high = max(low, without - 1), min(high, without)  # two trainings say little, but no more is lost than there is
    images = min(one.test_images for one in [*bare.values(), *defended.values()])
    known = _SOURCES[source].format(seeds=len(defended), images=images)
    text = (
        f"accuracy {100 * within:.1f}% against {100 * without:.1f}% without: {100 * (without - within):+.1f} points lost "
        f"(95% interval {100 * low:+.1f} to {100 * high:+.1f}, {known})"
    )
    gamma = max(0.0, high)
    return AccuracyLoss(
        defense, within, without, without - within, low, high, gamma, len(defended), images, source, text
    )


def _welch(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """The interval for the difference of two means with spreads of their own."""
    from scipy import stats  # a second that most processes need not spend

    if len(set(first)) == len(set(second)) == 1:
        return first[0] - second[0], first[0] - second[0]
    with warnings.catch_warnings():
        # Where one of the two has no spread scipy warns; the interval of the other is right all the same.
        warnings.simplefilter("ignore", RuntimeWarning)
        found = stats.ttest_ind(first, second, equal_var=False).confidence_interval(CONFIDENCE)
    return float(found.low), float(found.high)


def _by_seed(accuracies: Sequence[Accuracy], defense: str) -> dict[int, Accuracy]:
    return {one.seed: one for one in accuracies if one.defense == defense}


def _values(accuracies: dict[int, Accuracy]) -> list[float]:
    return [one.accuracy for one in accuracies.values()]
