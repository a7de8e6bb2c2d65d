import math

import pytest
import torch
from torch import nn

from gradveil.errors import GradveilError
from gradveil.scores import KEPT_FOR_ATTACKS, Estimate, Scorer
from gradveil.scores.definitions import DEFINITIONS, Definition, riemann, shorten, trapezoid
from gradveil.scores.privacy import published_definition
from gradveil.scores.reference import accuracy, grad_sim, privacy
from gradveil.transforms import Policy
from gradveil.types import Dataset, to_unit


def test_estimate_against_textbook_values() -> None:
    estimate = Estimate((1.0, 2.0, 3.0, 4.0), evaluations=9)
    assert estimate.mean == 2.5
    assert estimate.se == pytest.approx(math.sqrt(5 / 3) / 2)
    assert Estimate((1.0,), 1).se is None


@pytest.mark.parametrize("definition", [riemann(20), trapezoid(20), riemann(7), trapezoid(3)])
def test_quadrature_weights_sum_to_one(definition: object) -> None:
    assert sum(definition.weights) == pytest.approx(1)  # type: ignore[attr-defined]


def test_published_definitions() -> None:
    assert len(DEFINITIONS["code"].points) == 21
    assert (DEFINITIONS["code"].points[0], DEFINITIONS["code"].points[-1]) == (0, 1)
    assert DEFINITIONS["code"].weights[0] == DEFINITIONS["code"].weights[1] / 2
    assert DEFINITIONS["paper"].points[0] == 0
    assert DEFINITIONS["paper"].points[-1] < 1


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
@pytest.mark.parametrize(("points", "end"), [(1, False), (3, False), (5, False), (2, True), (5, True), (19, True)])
def test_a_shortened_sum_is_exact_for_polynomials(definition: Definition, points: int, end: bool) -> None:
    short = shorten(definition, points, end=end)
    assert len(short.points) == points
    assert (short.points[-1] == 1) == end
    assert all(weight > 0 for weight in short.weights)
    for degree in range(2 * points - end):
        whole = sum(w * p**degree for p, w in zip(definition.points, definition.weights, strict=True))
        assert sum(w * p**degree for p, w in zip(short.points, short.weights, strict=True)) == pytest.approx(whole)
    # One degree more and it is no longer: the rule is the one it says it is.
    if points < 5:
        degree = 2 * points - end
        whole = sum(w * p**degree for p, w in zip(definition.points, definition.weights, strict=True))
        found = sum(w * p**degree for p, w in zip(short.points, short.weights, strict=True))
        assert found != pytest.approx(whole, abs=1e-7)


def test_a_sum_cannot_be_shortened_to_nothing_or_to_more() -> None:
    for points in (0, 1, 20, 50):
        with pytest.raises(GradveilError, match="can shorten"):
            shorten(DEFINITIONS["paper"], points, end=True)


@pytest.mark.parametrize("definition", ["paper", "code"])
@pytest.mark.parametrize("points", [None, 5])
@pytest.mark.parametrize("at_once", [1, 7, 24])
def test_fast_scores_equal_the_reference_at_equal_points(
    fashion: Dataset,
    small_net: nn.Module,
    definition: str,
    points: int | None,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("similarity", "scorer"):
        monkeypatch.setattr(f"gradveil.scores.{module}.AT_ONCE", at_once)
    scorer = Scorer(small_net, small_net, fashion.test, images=5, definition=definition, points=points)
    policy = Policy.parse("21-13-3")
    images = to_unit(policy(fashion.test.images[scorer.order], seed=0, indices=scorer.order))
    how = published_definition(definition, points)
    labels = fashion.test.labels[scorer.order]
    expected = privacy(small_net, images, labels, scorer.order.tolist(), definition=how)
    found = scorer.privacy(policy)
    # Other batches round otherwise, by how much depends on the processor; images differ by a thousand times that.
    assert found.values == pytest.approx(expected.values, abs=4e-4)
    assert found.evaluations == 5 * how.evaluations


def test_batches_share_no_image(fashion: Dataset, small_net: nn.Module) -> None:
    # 900 images are left of 1,000; ten batches of 100 would meet the first again.
    assert Scorer(small_net, small_net, fashion.test).distinct_batches == 9
    assert Scorer(small_net, small_net, fashion.test, batch_size=5000).distinct_batches == 1


def test_grad_sim_of_known_vectors() -> None:
    a = {"u": torch.tensor([1.0, 0.0]), "v": torch.tensor([2.0])}
    b = {"u": torch.tensor([0.0, 1.0]), "v": torch.tensor([2.0])}
    assert grad_sim(a, b, per_tensor=True) == pytest.approx(0.5)
    assert grad_sim(a, b, per_tensor=False) == pytest.approx(4 / 5)


class Linear(nn.Module):
    """Logits (w.x, 0): the gradient is a known multiple of the image, so GradSim is the cosine of the images."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score = x.flatten(1) @ self.weight.T
        return torch.cat([score, torch.zeros_like(score)], 1)


@pytest.mark.parametrize("definition", ["paper", "code"])
def test_privacy_of_a_linear_model_has_a_closed_form(definition: str) -> None:
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    black = torch.zeros_like(images)
    score = privacy(Linear(), images, torch.zeros(3, dtype=torch.int64), [4, 5, 6], definition=definition)
    assert score.evaluations == 3 * (1 + len(DEFINITIONS[definition].points))
    from gradveil.randomness import generator

    how = DEFINITIONS[definition]
    for value, image, index in zip(score.values, images, (4, 5, 6), strict=True):
        noise = torch.rand(image.shape, generator=generator(0, "noise", index))
        cosines = [
            float(torch.cosine_similarity(((1 - p) * noise + p * image).flatten(), image.flatten(), dim=0))
            for p in how.points
        ]
        assert value == pytest.approx(sum(w * c for w, c in zip(how.weights, cosines, strict=True)), abs=1e-5)
    # An all-black image shares no gradient at all: nothing is similar to it.
    assert privacy(Linear(), black, torch.zeros(3, dtype=torch.int64), [4, 5, 6]).values == (0, 0, 0)


def test_accuracy_score_of_orthogonal_and_equal_reactions() -> None:
    class Reacts(nn.Module):
        """Squares its input, so that the Jacobian row of an image is twice the image."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.square().flatten(1).sum(1, keepdim=True)

    # Rows of a Hadamard matrix without the constant one: uncorrelated, every eigenvalue 1.
    rows = torch.tensor([[1.0, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]).view(3, 1, 2, 2)
    labels = torch.tensor([0, 1, 1])
    expected = -(math.log(1 + 1e-5) + 1 / (1 + 1e-5))
    assert accuracy(Reacts(), [(rows, labels)]).mean == pytest.approx(expected, abs=1e-4)
    # The code's variant sums, and leaves out the second image of label 1.
    assert accuracy(Reacts(), [(rows, labels)], variant="code").mean == pytest.approx(2 * expected, abs=1e-4)
    same = rows[:1].expand(3, -1, -1, -1)
    spectrum = [0.0, 0.0, 3.0]
    worst = -sum(math.log(s + 1e-5) + 1 / (s + 1e-5) for s in spectrum) / 3
    assert accuracy(Reacts(), [(same, labels)]).mean == pytest.approx(worst, rel=1e-3)


def test_accuracy_score_does_not_depend_on_how_many_images_are_looked_at_together(
    fashion: Dataset, small_net: nn.Module
) -> None:
    batch = (to_unit(fashion.test.images[:50]), fashion.test.labels[:50])
    whole = accuracy(small_net.eval(), [batch, batch])
    for at_once in (1, 24, 50, 51):
        assert accuracy(small_net, [batch, batch], at_once=at_once).values == pytest.approx(whole.values, rel=1e-4)
        assert accuracy(small_net, [batch, batch], at_once=at_once).evaluations == whole.evaluations


def test_scores_never_see_the_images_kept_for_attacks(fashion: Dataset, small_net: nn.Module) -> None:
    poisoned = fashion.test.images.clone()
    poisoned[:KEPT_FOR_ATTACKS] = 255 - poisoned[:KEPT_FOR_ATTACKS]
    from dataclasses import replace

    scores = [
        Scorer(small_net, small_net, images, images=4, batches=1)(Policy.parse("3-1-7"))
        for images in (fashion.test, replace(fashion.test, images=poisoned))
    ]
    assert scores[0] == scores[1]


def test_a_policy_that_erases_the_image_scores_differently(fashion: Dataset, small_net: nn.Module) -> None:
    scorer = Scorer(small_net, small_net, fashion.test, images=4, batches=2)
    plain, moved = (scorer(Policy.parse(text)) for text in ("identity", "3-1-7"))
    assert plain.privacy.values != moved.privacy.values
    assert plain.accuracy.mean > moved.accuracy.mean


def test_too_many_images_are_refused(fashion: Dataset, small_net: nn.Module) -> None:
    with pytest.raises(GradveilError, match="1 to 900"):
        Scorer(small_net, small_net, fashion.test, images=901)


def test_scoring_images_are_transformed_ones(fashion: Dataset, small_net: nn.Module) -> None:
    """S_pri of a policy is S_pri of the identity on images transformed beforehand."""
    scorer = Scorer(small_net, small_net, fashion.test, images=3, points=None)
    indices = scorer.order
    assert sorted(indices.tolist()) == [100, 400, 700]
    policy = Policy.parse("3-1-7")
    images = to_unit(policy(fashion.test.images[indices], seed=0, indices=indices))
    expected = privacy(small_net, images, fashion.test.labels[indices], indices.tolist(), definition=scorer.definition)
    assert scorer.privacy(policy).values == pytest.approx(expected.values, abs=1e-4)
