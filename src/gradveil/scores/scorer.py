"""Policies scored on the same images, the same noise and the same signs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from gradveil.devices import CPU, Device
from gradveil.errors import GradveilError, NotFinite
from gradveil.naming import lookup
from gradveil.progress import Advance, ignore
from gradveil.randomness import generator
from gradveil.scores import reference
from gradveil.scores.definitions import Definition
from gradveil.scores.estimate import Estimate
from gradveil.scores.pixels import pixel_statistics
from gradveil.scores.privacy import POINTS, SCORES, Score, curves, published_definition
from gradveil.scores.similarity import AT_ONCE, Similarity
from gradveil.transforms import Policy
from gradveil.types import ImageSet, to_unit

# The first test images belong to the attacks; a score that had seen them would be no prediction. Of few images, it is half.
KEPT_FOR_ATTACKS = 100
# Enough to know what a policy makes of images.
PIXEL_IMAGES = 64


def kept_for_attacks(test_images: int) -> int:
    """How many of the test images no score looks at."""
    return min(KEPT_FOR_ATTACKS, test_images // 2)


@dataclass(frozen=True)
class Scores:
    """Privacy (S_pri, lower is more private) and accuracy (S_acc, higher is better) of one policy."""

    privacy: Estimate
    accuracy: Estimate

    def summary(self) -> dict[str, dict[str, float | int | None]]:
        """The figures as plain data, for JSON."""
        return {"privacy": self.privacy.summary(), "accuracy": self.accuracy.summary()}


@dataclass(frozen=True)
class Scorer:
    """Scores that can be compared pairwise: every policy meets the same images, noise and signs.

    `trained` is the semi-trained model that S_pri looks at. `untrained` is the fresh one for S_acc. Of the test images
    `held_out` S_pri takes `images`; memory does not grow with their number. S_acc takes up to `batches` batches, as many as
    there are without using an image twice. The models compute on `device`, wherever they are.

    `score` is a name in `SCORES`, computed as `definition` says at `points` points (None takes all published ones), or a
    `PrivacyScore` (or any `Score`) of your own:

        Scorer(model, fresh, test, score=PrivacyScore(brightness, evaluations=0))
    """

    trained: nn.Module
    untrained: nn.Module
    held_out: ImageSet
    images: int = 100
    batches: int = 10
    batch_size: int = 100
    definition: str = "paper"
    points: int | None = POINTS
    score: str | Score = "grad-sim"
    seed: int = 0
    device: Device = CPU

    def __post_init__(self) -> None:
        self.held_out.check_one_label("a score")
        if not 1 <= self.images <= self.available:
            raise GradveilError(
                f"can score on 1 to {max(self.available, 0)} images, got {self.images}: "
                f"{len(self.held_out)} test images, the first {self.kept} are kept for attacks"
            )
        if self.batches < 1 or self.batch_size < 1:
            raise GradveilError(f"S_acc needs at least one batch of one image, got {self.batches} of {self.batch_size}")
        _ = self.privacy_score

    def __call__(self, policy: Policy, *, advance: Advance = ignore) -> Scores:
        """Both scores of `policy`; `advance` is called for every image of S_pri."""
        with self.device.computing("--batches"):
            return Scores(self.privacy(policy, advance=advance), self.accuracy(policy))

    @cached_property
    def privacy_score(self) -> Score:
        """`score` itself, or the one it names; looked up once, so that processes without that name get it too."""
        if not isinstance(self.score, str):
            return self.score
        return lookup(SCORES, self.score, "score")(published_definition(self.definition, self.points))

    @cached_property
    def network(self) -> Similarity:
        """The trained model, ready to compare gradients."""
        return Similarity(self.trained.eval(), self.device)

    @cached_property
    def _untrained(self) -> nn.Module:
        return self.device.place(self.untrained.eval())

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_untrained"}

    @cached_property
    def order(self) -> Tensor:
        """The images S_pri takes, spread evenly over those not kept for attacks, shuffled: any first few are a fair sample."""
        spread = self.kept + torch.arange(self.images) * self.available // self.images
        return spread[torch.randperm(self.images, generator=generator(self.seed, "order"))]

    def privacy(
        self, policy: Policy, places: range | None = None, *, quick: bool = False, advance: Advance = ignore
    ) -> Estimate:
        """S_pri of `policy`, one value per image: of all images, or of those at `places` in their order.

        `quick` looks at fewer points of each image's way.
        """
        score = self.privacy_score.quick or self.privacy_score if quick else self.privacy_score
        indices = self.order[list(places)] if places is not None else self.order
        values: list[float] = []
        for some in torch.split(indices, AT_ONCE):
            values += self._values(score, policy, some)
            advance(len(some))
        return Estimate(tuple(values), evaluations=len(values) * score.evaluations)

    def pixels(self, policy: Policy) -> tuple[float, ...]:
        """What the policy makes of images, without any gradient: the mean of their `pixel_statistics`."""
        indices = self.order[:PIXEL_IMAGES]
        # On the CPU, like whatever decides a search: the numbers are the same everywhere.
        images, plain = self.transform(policy, indices)[0].cpu(), to_unit(self.held_out.take(indices).images)
        return tuple(pixel_statistics(images, plain).double().mean(0).tolist())

    def _values(self, score: Score, policy: Policy, indices: Tensor) -> list[float]:
        found = score.measure(self, policy, indices).cpu()
        if not bool(found.isfinite().all()):
            worst = int(indices[~found.isfinite()][0])
            raise NotFinite(f"the gradient for test image {worst} under {policy} is not finite: S_pri is undefined")
        return [float(value) for value in found]

    def transform(self, policy: Policy, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Images (N, C, H, W) in [0, 1] under the policy, and their labels."""
        chosen = self.held_out.take(indices)
        transformed = to_unit(policy(chosen.images, seed=self.seed, indices=indices))
        return transformed.to(self.device.torch), chosen.labels.to(self.device.torch)

    def noise(self, indices: Tensor, like: Tensor) -> Tensor:
        """Uniform noise of the shape of `like`, (N, C, H, W), a function of each image's number alone."""
        return noise(self.seed, indices.tolist(), like)

    @property
    def kept(self) -> int:
        """Test images that are kept for attacks: the first 100, or half of fewer than 200."""
        return kept_for_attacks(len(self.held_out))

    @property
    def available(self) -> int:
        """Test images that are not kept for attacks."""
        return len(self.held_out) - self.kept

    @property
    def accuracy_gradients(self) -> int:
        """Gradients that S_acc of one policy takes on all batches."""
        return self.distinct_batches * min(self.batch_size, self.available)

    @property
    def gradients(self) -> int:
        """Gradients that both scores of one policy take."""
        return self.images * self.privacy_score.evaluations + self.accuracy_gradients

    @property
    def distinct_batches(self) -> int:
        """Batches for S_acc that have no image in common."""
        return min(self.batches, self.available // min(self.batch_size, self.available))

    def curves(self, policy: Policy, definition: Definition, *, most: int, first: int = 0) -> Tensor:
        """(N, P): GradSim at the points of `definition` for the images at `first` to `most` in their order."""
        indices = self.order[first:most]
        images, labels = self.transform(policy, indices)
        return curves(self.network, images, labels, self.noise(indices, images), definition)

    def accuracy(self, policy: Policy, batches: range | None = None) -> Estimate:
        """S_acc of `policy`, one value per batch: of all batches, or of those numbered `batches`."""
        size = min(self.batch_size, self.available)
        numbers = batches if batches is not None else range(self.distinct_batches)
        parts = [self.transform(policy, self.kept + number * size + torch.arange(size)) for number in numbers]
        variant = "code" if self.definition == "code" else "mean"
        found = reference.accuracy(self._untrained, parts, variant=variant, at_once=AT_ONCE)
        if not all(map(torch.isfinite, torch.tensor(found.values))):
            raise NotFinite(
                f"the untrained model's reaction to images under {policy} is not finite: S_acc is undefined"
            )
        return found


def noise(seed: int, indices: Sequence[int], like: Tensor) -> Tensor:
    """Uniform noise for each image, a function of (seed, index) alone."""
    shape = like.shape[1:]
    return torch.stack([torch.rand(shape, generator=generator(seed, "noise", i)) for i in indices]).to(like.device)
