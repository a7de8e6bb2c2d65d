import pytest
import torch
from torch import Tensor, nn

from gradveil.attacks import Evidence, parse_attack
from gradveil.attacks.analytic import ClosedForm
from gradveil.attacks.draws import Draw, SimulateDraws, SimulatePolicy, apply_draws, draws_of, possible_draws
from gradveil.attacks.guesses import estimate
from gradveil.attacks.inverses import inverse
from gradveil.attacks.surrogates import SURROGATES, apply_kernel, apply_surrogate, apply_with_slope
from gradveil.attacks.undo import Undo
from gradveil.client import share
from gradveil.defenses.augment import Augment
from gradveil.errors import GradveilError
from gradveil.leakage.metrics import psnr
from gradveil.leakage.scenario import Scenario
from gradveil.randomness import generator
from gradveil.training.stage import Stage
from gradveil.transforms import library
from gradveil.transforms.library import LIBRARY, OPERATIONS, Operation, operation, register
from gradveil.transforms.policy import Policy
from gradveil.types import Batch, Dataset, to_unit

POLICIES = ["3-1-7", "43-18-18", "21-13-3+7-4-15", "12-25-38", "10-2-6", "9-0-37", "identity+rotate:9-blur:4"]
FLAT = {"equalize", "posterize"}  # stairs: the surrogate is not near the kernel


def colours(count: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (count, 3, 9, 11), generator=generator(seed), dtype=torch.uint8)


def slope_of(op: Operation, sign: int, images: Tensor, towards: Tensor) -> Tensor:
    images = images.clone().requires_grad_()
    (found,) = torch.autograd.grad(apply_with_slope(op, sign, images), images, towards)
    return found


@pytest.mark.parametrize("text", POLICIES)
def test_draws_do_exactly_what_the_policy_does(text: str, fashion: Dataset) -> None:
    policy = Policy.parse(text)
    for images in (fashion.test.images[:60], colours(60)):
        indices = torch.arange(60) + 11
        draws = draws_of(policy, images.shape[1], seed=5, indices=indices)
        pixels = to_unit(images).requires_grad_()
        done = apply_draws(draws, pixels)
        assert torch.equal(done, to_unit(policy(images, seed=5, indices=indices)))
        (slope,) = torch.autograd.grad(done.sum(), pixels, allow_unused="identity" in text)
        assert torch.isfinite(slope).all()
        possible = possible_draws(policy, images.shape[1], most=64, chance=generator(0))
        assert set(draws) <= set(possible)
        assert sum(possible.values()) == pytest.approx(1)


@pytest.mark.parametrize("name", OPERATIONS)
def test_surrogates_stay_within_rounding_of_the_kernel(name: str, fashion: Dataset) -> None:
    assert name in SURROGATES
    for op in (operation(name, level) for level in (0, 4, 9)):
        for sign in (1, -1) if op.signed else (1,):
            for images in (to_unit(fashion.test.images[:10]), to_unit(colours(10))):
                apart = (apply_surrogate(op, sign, images) - apply_kernel(op, sign, images)).abs().max() * 255
                assert name in FLAT or apart < 1.3


@pytest.mark.parametrize("op", LIBRARY, ids=repr)
def test_every_published_operation_has_a_finite_slope(op: Operation, fashion: Dataset) -> None:
    for images in (to_unit(fashion.test.images[:2]), to_unit(colours(2))):
        for sign in (1, -1):
            slope = slope_of(op, sign, images, torch.ones_like(images))
            assert slope.shape == images.shape
            assert torch.isfinite(slope).all()
            assert slope.any()


@pytest.mark.parametrize(
    "name", ["brightness", "contrast", "color", "sharpness", "blur", "grayscale", "shear_x", "shear_y"]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_slopes_against_differences_of_the_kernel(name: str, sign: int) -> None:
    # Far apart, because the kernel rounds; in the middle of the range, because it clips.
    op = operation(name, 6)
    images = 0.4 + 0.2 * torch.rand((1, 3, 12, 12), generator=generator(1))
    way, towards = (torch.randn(images.shape, generator=generator(seed)) for seed in (2, 3))
    step = 0.04 * way.clamp(-1, 1)
    difference = ((apply_kernel(op, sign, images + step) - apply_kernel(op, sign, images - step)) * towards).sum() / 2
    slope = (slope_of(op, sign, images, towards) * step).sum()
    noise = len(towards.flatten()) ** 0.5 / 255
    assert float(slope) == pytest.approx(float(difference), abs=noise)


@pytest.mark.parametrize("name", ["translate_x", "translate_y", "rotate", "rotate_right", "zoom", "flip_x", "cutout"])
def test_moves_send_slopes_back_where_pixels_came_from(name: str) -> None:
    op = operation(name, 7)
    images = torch.rand((2, 1, 17, 20), generator=generator(1))
    towards = torch.randn(images.shape, generator=generator(2))
    black = apply_kernel(op, 1, torch.zeros_like(images))
    # Linear up to the fill: <T(x) - T(0), y> = <x, T'y>, with bytes that are whole numbers.
    pixels = (images * 255).round() / 255
    left = ((apply_kernel(op, 1, pixels) - black) * towards).sum()
    inside = apply_kernel(op, 1, torch.ones_like(images)) != black
    right = (pixels * slope_of(op, 1, pixels, towards * inside)).sum() - (black * inside * towards).sum()
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)
    assert not slope_of(op, 1, pixels, towards * ~inside).any()


def test_a_translation_is_a_permutation(fashion: Dataset) -> None:
    op = operation("translate_x", 9)
    slope = slope_of(op, 1, to_unit(fashion.test.images[:1]), torch.ones(1, 1, 28, 28))
    assert torch.equal(slope, apply_kernel(op, -1, torch.ones(1, 1, 28, 28)))


def test_the_users_own_operation_has_the_slope_of_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "OPERATIONS", dict(OPERATIONS))
    register("halve", lambda images, magnitude: images // 2)
    op = library.operation("halve", 3)
    images, towards = to_unit(colours(2)), torch.rand(2, 3, 9, 11)
    assert torch.equal(apply_with_slope(op, 1, images), to_unit(colours(2) // 2))
    assert torch.equal(slope_of(op, 1, images, towards), towards)
    assert (Undo(steps=30).undo_draws(to_unit(colours(2) // 2), [Draw(((op, 1),))] * 2)).isfinite().all()


def test_simulations_draw_afresh_or_as_told(fashion: Dataset) -> None:
    policy, images = Policy.parse("3-1-7+43-18-18"), fashion.test.images[:4]
    simulate, chance = SimulatePolicy(policy), generator(0)
    first, second = simulate(to_unit(images), chance), simulate(to_unit(images), chance)
    assert not torch.equal(first, second)
    assert torch.equal(first, simulate(to_unit(images), generator(0)))
    draws = draws_of(policy, 1, seed=2, indices=torch.arange(4))
    told = SimulateDraws(draws)(to_unit(images), chance)
    assert torch.equal(told, to_unit(policy(images, seed=2, indices=torch.arange(4))))


def test_closed_forms_bring_back_what_is_still_there(fashion: Dataset) -> None:
    images = to_unit(fashion.test.images[:5])
    for text, least in (("invert", 60), ("flip_x", 60), ("translate_x:5", 60), ("sharpness:9", 28), ("shear_y:5", 24)):
        for draw in possible_draws(Policy.parse(text), 1, most=64, chance=generator(0)):
            found, known = inverse(draw(images), draw.steps)
            quality = psnr(found * known, images * known)
            assert float(quality.mean()) > least, draw


def by_class(fashion: Dataset, count: int) -> list[Tensor | None]:
    chosen = {label: fashion.train.images[fashion.train.labels == label][:60] for label in range(10)}
    return [chosen[label] for label in fashion.test.labels[:count].tolist()]


@pytest.mark.parametrize("text", ["3-1-7", "10-2-6", pytest.param("21-13-3+7-4-15", marks=pytest.mark.long)])
def test_undoing_beats_the_transformed_image(text: str, fashion: Dataset) -> None:
    policy, count = Policy.parse(text), 8
    images = to_unit(fashion.test.images[:count])
    draws = draws_of(policy, 1, seed=0, indices=torch.arange(count))
    transformed = apply_draws(draws, images)
    before = psnr(transformed, images).mean()
    undo = Undo(steps=10)
    assert float(psnr(undo.undo_draws(transformed, draws), images).mean()) > before + 4
    assert float(psnr(undo.undo_policy(transformed, policy), images).mean()) > before + 2
    with_public = undo.undo_policy(transformed, policy, by_class(fashion, count))
    assert float(psnr(with_public, images).mean()) > before + 5
    assert with_public.min() >= 0
    assert with_public.max() <= 1
    assert torch.equal(with_public[:2], undo.undo_policy(transformed[:2], policy, by_class(fashion, 2)))


def test_the_most_likely_draw_is_mostly_the_right_one(fashion: Dataset) -> None:
    """Of 10 images behind 3-1-7 with an error of 0.1 per pixel; eight draws, one in eight by chance."""
    policy, count = Policy.parse("3-1-7"), 10
    draws = draws_of(policy, 1, seed=0, indices=torch.arange(count))
    transformed = apply_draws(draws, to_unit(fashion.test.images[:count]))
    noisy = (transformed + 0.1 * torch.randn(transformed.shape, generator=generator(0))).clamp(0, 1)
    for public in (by_class(fashion, count), [None] * count):
        right = 0
        for row, (draw, seen) in enumerate(zip(draws, public, strict=True)):
            (candidates,) = Undo().candidates(noisy[row : row + 1], policy, seen)
            right += max(candidates, key=lambda one: one.odds).draw == draw
        assert right >= 8


def test_more_draws_than_can_be_tried_are_sampled() -> None:
    policy = Policy.parse("3-1-7+21-13-3+7-4-15")
    found = possible_draws(policy, 1, most=5, chance=generator(1))
    assert len(found) == 5
    assert sum(found.values()) == pytest.approx(1)
    assert found == possible_draws(policy, 1, most=5, chance=generator(1))


def evidence_of(model: nn.Module, images: Tensor, labels: Tensor, fashion: Dataset, *, public: bool) -> Evidence:
    shared = share(model, Batch(to_unit(images), labels))
    return Evidence(
        model, shared, fashion.train.image_shape, len(images), labels, public=fashion.train if public else None
    )


@pytest.mark.parametrize("public", [True, False])
def test_augment_as_a_defense(public: bool, fashion: Dataset, small_net: nn.Module) -> None:
    defense, indices = Augment(Policy.parse("3-1-7")), torch.tensor([3, 4])
    images, labels = fashion.test.images[3:5], fashion.test.labels[3:5]
    hidden = defense.images(images, seed=1, indices=indices)
    assert torch.equal(hidden, defense.policy(images, seed=1, indices=indices))
    evidence = evidence_of(small_net, hidden, labels, fashion, public=public)
    attack = parse_attack("fast", iterations=3)
    assert defense.adapt(attack, evidence) == attack
    told = defense.with_draws(seed=1, indices=indices)
    for one in (defense, told):
        undone = one.undo(to_unit(hidden), evidence, seed=0)
        assert undone.shape == hidden.shape
        assert torch.equal(undone, one.undo(to_unit(hidden), evidence, seed=0))
        assert (psnr(undone, to_unit(images)) > psnr(to_unit(hidden), to_unit(images))).all()
    assert "draw" in told.knowledge
    assert "draw" not in defense.knowledge


@pytest.mark.parametrize("tell", [True, False])
def test_augment_simulated(tell: bool, fashion: Dataset, small_net: nn.Module) -> None:
    defense, indices = Augment(Policy.parse("21-13-3+7-4-15"), how="simulate"), torch.tensor([0])
    defense = defense.with_draws(seed=1, indices=indices) if tell else defense
    hidden = defense.images(fashion.test.images[:1], seed=1, indices=indices)
    evidence = evidence_of(small_net, hidden, fashion.test.labels[:1], fashion, public=False)
    attack = defense.adapt(parse_attack("fast", iterations=3), evidence)
    first, again = attack(evidence, seed=2), attack(evidence, seed=2)
    assert torch.equal(first.images, again.images)
    assert torch.equal(defense.undo(first.images, evidence, seed=0), estimate(first.images, evidence))
    assert "simulates" in defense.knowledge


def test_augment_refuses_what_it_cannot_do(fashion: Dataset, small_net: nn.Module) -> None:
    policy = Policy.parse("3")
    evidence = evidence_of(small_net, fashion.test.images[:2], fashion.test.labels[:2], fashion, public=False)
    with pytest.raises(GradveilError, match="with_draws"):
        Augment(policy, knows="draw").undo(torch.rand(2, 1, 28, 28), evidence, seed=0)
    with pytest.raises(GradveilError, match="expected the draws of 2 images, got those of 1"):
        Augment(policy).with_draws(seed=0, indices=torch.tensor([1])).undo(torch.rand(2, 1, 28, 28), evidence, seed=0)
    with pytest.raises(GradveilError, match="analytic cannot simulate a defense"):
        Scenario("fashion-mnist-tenth", "mlp", Stage(), ClosedForm(), Augment(policy), "simulate")
