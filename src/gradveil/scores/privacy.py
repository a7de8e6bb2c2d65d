"""Privacy scores: functions of the way from noise to a transformed image; lower is more private."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from gradveil.naming import lookup
from gradveil.scores.decibels import Contrast, decibels, smoothness
from gradveil.scores.definitions import DEFINITIONS, Definition, shorten
from gradveil.scores.identification import IdentificationScore
from gradveil.scores.similarity import Similarity
from gradveil.transforms import Policy

if TYPE_CHECKING:
    from gradveil.scores.scorer import Scorer

# Of the 20 or 21 published points five give the same area, see docs/search.md; one is enough to tell bad policies from good ones.
POINTS = 5

# What a score sees: the network, transformed images (N, C, H, W), float in [0, 1], their labels (N,), and the noise each way
# starts from, of the images' shape. It gives one value per image, (N,), higher where the gradient helps an attacker more.
PrivacyFunction = Callable[[Similarity, Tensor, Tensor, Tensor], Tensor]


class Score(Protocol):
    """What a search can race policies on: one value per image, higher where an attacker gets more.

    A function of transformed images is a `PrivacyScore`. A score that has to know the policy, the images as they were or both of
    the scorer's networks is a class of its own with these three members, such as `IdentificationScore`. Use a frozen dataclass:
    its settings tell one study from another.
    """

    @property
    def evaluations(self) -> int:
        """Gradients per image."""
        ...

    @property
    def quick(self) -> "Score | None":
        """A cheaper look at the same, for the start of a race."""
        ...

    def measure(self, scorer: "Scorer", policy: Policy, indices: Tensor) -> Tensor:
        """The values (N,) of the test images at `indices` (N,) under the policy; the same whatever other images are asked for."""
        ...


@dataclass(frozen=True)
class PrivacyScore:
    """A privacy score for `Scorer`, of transformed images.

    `function(network, images, labels, noise)` gives one value per image, see `PrivacyFunction`. `evaluations` is the number
    of gradients it takes per image. `quick` is a cheaper look at the same, for the start of a race.

        PrivacyScore(lambda network, images, labels, noise: images.mean((1, 2, 3)), evaluations=0)
    """

    function: PrivacyFunction
    evaluations: int
    quick: "PrivacyScore | None" = None

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        return self.function(network, images, labels, noise)

    def measure(self, scorer: "Scorer", policy: Policy, indices: Tensor) -> Tensor:
        """The values (N,) of the test images at `indices` (N,) under the policy."""
        images, labels = scorer.transform(policy, indices)
        return self(scorer.network, images, labels, scorer.noise(indices, images))


@dataclass(frozen=True)
class Area:
    """S_pri of Gao et al. (2021): the area under GradSim(x'(i), T(x)) for x'(i) = (1 - i) x0 + i T(x), i from 0 to 1."""

    definition: Definition

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        found = curves(network, images, labels, noise, self.definition)
        return found @ torch.tensor(self.definition.weights, dtype=found.dtype, device=found.device)


@dataclass(frozen=True)
class Nearness:
    """The same in dB, -10 log10(1 - S_pri), at most 60: where all similarities are near 1, what is missing to 1 differs."""

    area: Area

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        return -decibels(1 - self.area(network, images, labels, noise))


@dataclass(frozen=True)
class Smooth:
    """A score in dB plus the smoothness of T(x), which no gradient is needed for: together they predict attacks better."""

    score: PrivacyFunction

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        return self.score(network, images, labels, noise) + smoothness(images)


def curves(network: Similarity, images: Tensor, labels: Tensor, noise: Tensor, definition: Definition) -> Tensor:
    """(N, P): GradSim at the points of `definition`, image by image. At point 1 an image meets itself: that costs nothing."""
    position = torch.tensor(definition.points, dtype=images.dtype, device=images.device)
    between = position[position != 1].view(1, -1, 1, 1, 1)
    ways = (1 - between) * noise[:, None] + between * images[:, None]
    cosines = network.with_others(images, ways, labels).cosines(per_tensor=definition.per_tensor)
    rows = cosines[:, :1].repeat(1, len(position))
    rows[:, position != 1] = cosines[:, 1:]
    return rows


def area(definition: Definition, wrap: Callable[[Area], PrivacyFunction] = lambda area: area) -> PrivacyScore:
    """A function of the area by all points of `definition`; its quick look is a single point."""
    glance = shorten(definition, 1, end=False)
    quick = PrivacyScore(wrap(Area(glance)), glance.evaluations)
    return PrivacyScore(wrap(Area(definition)), definition.evaluations, quick)


def published_definition(definition: str, points: int | None = POINTS) -> Definition:
    """The published definition by name, shortened to `points` points; None takes them all."""
    whole = lookup(DEFINITIONS, definition, "definition of S_pri")
    return whole if points is None else shorten(whole, points, end=True)


# By name, a function of the definition: some scores have no use for it.
SCORES: dict[str, Callable[[Definition], Score]] = {
    "grad-sim": area,
    "smooth-grad-sim": lambda definition: area(definition, lambda area: Smooth(Nearness(area))),
    "smooth-contrast": lambda _: PrivacyScore(Smooth(Contrast()), Contrast.evaluations),
    "identification": lambda _: IdentificationScore(),
}
