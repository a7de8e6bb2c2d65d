"""Parts of experiments that score policies instead of attacking."""

from dataclasses import dataclass, field

import numpy as np

from gradveil.experiments.lab import Lab
from gradveil.experiments.meanings import recipe_in_full
from gradveil.experiments.records import PUBLISHED_SCORE, Curve, Pieces, Scored
from gradveil.naming import digest_of, slug
from gradveil.parallel import using_one_thread
from gradveil.scores.privacy import published_definition
from gradveil.searching.ranking import rank
from gradveil.training import Recipe
from gradveil.transforms import Policy

UNTRANSFORMED = "identity"


@dataclass(frozen=True)
class Paths:
    """GradSim at the published points of the way from noise to the image (Eq. 5), with and without a policy."""

    dataset: str
    model: str
    policies: tuple[str, ...]
    images: int = 100
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def datasets(self) -> tuple[str, ...]:
        return (self.dataset,)

    def settings(self) -> list[str]:
        """The part in words."""
        return [
            f"GradSim at 20 points of {self.images} test images, {', '.join(self.policies)}: {self.model} trained for "
            f"{self.recipe.epochs} epochs on {self.dataset}"
        ]

    def meanings(self) -> list[str]:
        """The recipe in full."""
        return [recipe_in_full(self.recipe)]

    def work(self) -> str:
        """How much it is, in a few words."""
        return f"{self.model}: GradSim of {len(self.policies)} policies x {self.images} images"

    def run(self, lab: Lab) -> Pieces:
        """A curve per policy; `values` are the areas, which S_pri is the mean of."""
        scorer = lab.scorer(lab.load(self.dataset), self.model, self.recipe, images=self.images, points=None)
        definition = published_definition("paper", None)
        curves = []
        with (
            using_one_thread(),
            scorer.device.computing("--scale"),
            lab.progress("GradSim along the path", len(self.policies), "policies") as advance,
        ):
            for name in self.policies:
                rows = scorer.curves(Policy.parse(name), definition, most=self.images).double().cpu().numpy()
                sd = rows.std(0, ddof=1) if len(rows) > 1 else np.zeros(rows.shape[1])
                areas = rows @ np.array(definition.weights)
                figures = (definition.points, rows.mean(0), sd, areas)
                curves.append(Curve("path", name, *(tuple(round(float(v), 4) for v in one) for one in figures)))
                advance(1)
        return Pieces(curves=tuple(curves))


@dataclass(frozen=True)
class PolicyScores:
    """A privacy score of each policy on a network trained without a defense; resumable, in any number of workers.

    The published one, S_pri, at all published points unless `points` are fewer.
    """

    dataset: str
    model: str
    policies: tuple[str, ...]
    images: int = 100
    recipe: Recipe = field(default_factory=Recipe)
    points: int | None = None
    score: str = PUBLISHED_SCORE

    @property
    def datasets(self) -> tuple[str, ...]:
        return (self.dataset,)

    def settings(self) -> list[str]:
        """The part in words."""
        points = 20 if self.points is None else self.points
        return [
            f"{self.score_in_words} of {len(self.policies)} policies at {points} points on {self.images} test images: "
            f"{self.model} trained for {self.recipe.epochs} epochs on {self.dataset}"
        ]

    def meanings(self) -> list[str]:
        """The recipe in full."""
        return [recipe_in_full(self.recipe)]

    def work(self) -> str:
        """How much it is, in a few words."""
        return f"{self.model}: {self.score_in_words} of {len(self.policies)} policies x {self.images} images"

    @property
    def score_in_words(self) -> str:
        return "S_pri" if self.score == PUBLISHED_SCORE else self.score

    def run(self, lab: Lab) -> Pieces:
        """Score what is missing; policies that do the same to these images are scored once."""
        dataset = lab.load(self.dataset)
        scorer = lab.scorer(dataset, self.model, self.recipe, images=self.images, points=self.points, score=self.score)
        channels = dataset.test.image_shape[0]
        same = {name: Policy.parse(name).canonical(channels) for name in (UNTRANSFORMED, *self.policies)}
        storage = lab.folder / "scores" / f"{slug(self.dataset, self.model)}-{digest_of(self)}.sqlite3"
        storage.parent.mkdir(parents=True, exist_ok=True)
        distinct = list(dict.fromkeys(same.values()))
        found = rank(scorer, storage, distinct, workers=lab.workers, backend=lab.backend, progress=lab.progress)
        return Pieces(
            scored=tuple(
                Scored(name, tuple(round(value, 4) for value in found[policy].privacy.values), self.score)
                for name, policy in same.items()
                if policy in found
            )
        )
