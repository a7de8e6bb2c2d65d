"""Privacy scores: functions of the way from noise to a transformed image; lower is more private."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.names import lookup
from gradveil.scores.attacking import Descent, FewSteps
from gradveil.scores.definitions import DEFINITIONS, Definition, shortened
from gradveil.scores.similarity import Similarity

# Gradients in one pass. More would not be faster (they are bound by arithmetic) and would need more memory.
AT_ONCE = 24
# Of the 20 or 21 published points five give the same area, see docs/search.md; one is enough to tell bad policies from good ones.
POINTS = 5

# What a score sees: the network, transformed images (N, C, H, W), their labels (N,), the noise each way starts from, shaped as
# the images. It gives one value per image, (N,), higher where the gradient helps an attacker more.
PrivacyFunction = Callable[[Similarity, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class PrivacyScore:
    """A privacy score with the gradients it takes per image, and a cheaper look at the same for the start of a race."""

    function: PrivacyFunction
    evaluations: int
    quick: "PrivacyScore | None" = None

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        return self.function(network, images, labels, noise)


@dataclass(frozen=True)
class Area:
    """S_pri of Gao et al. (2021): the area under GradSim(x'(i), T(x)) for x'(i) = (1 - i) x0 + i T(x), i from 0 to 1.

    `depth` takes only the first parameter tensors into account, as a share of all of them.
    """

    definition: Definition
    depth: float = 1.0

    def __call__(self, network: Similarity, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        found = curves(network, images, labels, noise, self.definition, depth=self.depth)
        return found @ torch.tensor(self.definition.weights, dtype=found.dtype, device=found.device)


def curves(
    network: Similarity, images: Tensor, labels: Tensor, noise: Tensor, definition: Definition, *, depth: float = 1.0
) -> Tensor:
    """(N, P): GradSim at the points of `definition`, image by image. At point 1 an image meets itself: that costs nothing."""
    position = torch.tensor(definition.points, dtype=images.dtype, device=images.device)
    between = position[position != 1].view(1, -1, 1, 1, 1)
    size = max(1, AT_ONCE // (1 + between.shape[1]))
    tensors = max(1, round(depth * len(network.names)))
    rows = []
    for some in torch.split(torch.arange(len(images)), size):
        target, start = images[some, None], noise[some, None]
        group = torch.cat([target, (1 - between) * start + between * target], 1)
        cosines = network(group, labels[some]).first(tensors).cosines(per_tensor=definition.per_tensor)
        row = cosines[:, :1].repeat(1, len(position))
        row[:, position != 1] = cosines[:, 1:]
        rows.append(row)
    return torch.cat(rows)


def area(definition: Definition, *, depth: float = 1.0) -> PrivacyScore:
    """The area by all points of `definition`; its quick look is a single point."""
    glance = shortened(definition, 1, end=False)
    quick = PrivacyScore(Area(glance, depth), glance.evaluations)
    return PrivacyScore(Area(definition, depth), definition.evaluations, quick)


def begun(attack: FewSteps | Descent, *, quick: FewSteps | Descent) -> PrivacyScore:
    """A score that begins an attack, and one that does so for less."""
    return PrivacyScore(attack, attack.evaluations, PrivacyScore(quick, quick.evaluations))


def published(definition: str, points: int | None = POINTS) -> Definition:
    """The published definition by name, shortened to `points` points; None takes them all."""
    whole = lookup(DEFINITIONS, definition, "definition of S_pri")
    return whole if points is None else shortened(whole, points, end=True)


# By name, a function of the definition: some scores have no use for it.
SCORES: dict[str, Callable[[Definition], PrivacyScore]] = {
    "grad-sim": area,
    "early-layers": lambda definition: area(definition, depth=1 / 3),
    "few-steps": lambda _: begun(FewSteps(7), quick=FewSteps(1)),
    "descent": lambda _: begun(Descent((0.0, 0.2, 0.4, 0.6, 0.8)), quick=Descent((0.4,))),
    "descent-from-null": lambda _: begun(Descent((0.0, 0.25, 0.5), True), quick=Descent((0.0,), True)),
}
