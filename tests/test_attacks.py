import pytest
import torch
from torch import nn

from gradveil import metrics
from gradveil.attacks import ATTACKS, Inversion, attack_named
from gradveil.attacks.objectives import cosine_distance, l2_distance
from gradveil.attacks.optimizers import Adam
from gradveil.attacks.priors import TotalVariation
from gradveil.client import share
from gradveil.errors import GradveilError
from gradveil.models import build, normalization
from gradveil.types import Batch, Dataset, Gradients, to_unit


def one_image(fashion: Dataset, index: int) -> Batch:
    return Batch(to_unit(fashion.test.images[index : index + 1]), fashion.test.labels[index : index + 1])


@pytest.fixture(scope="module")
def lenet() -> nn.Module:
    return build("lenet", (1, 28, 28), 10, mean=[0.286], std=[0.353]).eval()


def test_shared_gradient_equals_backward(fashion: Dataset, small_net: nn.Module) -> None:
    batch = Batch(to_unit(fashion.test.images[:3]), fashion.test.labels[:3])
    gradients = share(small_net, batch)
    small_net.zero_grad()
    nn.functional.cross_entropy(small_net(batch.images), batch.labels).backward()
    for name, parameter in small_net.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(gradients[name], parameter.grad)
    small_net.zero_grad()


def test_objectives_against_flat_vectors() -> None:
    rng = torch.Generator().manual_seed(0)
    a, b = ([torch.randn(shape, generator=rng) for shape in ((3, 4), (5,), (2, 2, 2))] for _ in range(2))
    flat_a, flat_b = (torch.cat([tensor.flatten() for tensor in tensors]) for tensors in (a, b))
    torch.testing.assert_close(l2_distance(a, b), (flat_a - flat_b).square().sum())
    torch.testing.assert_close(cosine_distance(a, b), 1 - torch.cosine_similarity(flat_a, flat_b, dim=0))
    assert float(cosine_distance(a, [3 * tensor for tensor in a])) == pytest.approx(0, abs=1e-6)
    assert torch.isfinite(cosine_distance([torch.zeros_like(tensor) for tensor in a], a))


def test_total_variation_against_a_loop() -> None:
    image = torch.rand(1, 2, 4, 5)
    across = [abs(image[0, c, y, x + 1] - image[0, c, y, x]) for c in range(2) for y in range(4) for x in range(4)]
    down = [abs(image[0, c, y + 1, x] - image[0, c, y, x]) for c in range(2) for y in range(3) for x in range(5)]
    expected = 0.1 * (torch.stack(across).mean() + torch.stack(down).mean())
    torch.testing.assert_close(TotalVariation(0.1)(image), expected)


def test_dlg_rebuilds_real_images_on_lenet(fashion: Dataset, lenet: nn.Module) -> None:
    for index in range(2):
        batch = one_image(fashion, index)
        found = attack_named("dlg")(lenet, share(lenet, batch), batch.labels, (1, 28, 28), seed=index)
        assert not found.diverged
        assert float(metrics.psnr(found.images, batch.images)) > 30


def test_adam_cosine_beats_the_null_on_an_untrained_convnet(fashion: Dataset) -> None:
    model = build("convnet-16", (1, 28, 28), 10, mean=[0.286], std=[0.353]).eval()
    gains = []
    for index in range(2):
        batch = one_image(fashion, index)
        found = attack_named("adam+cosine", 120)(model, share(model, batch), batch.labels, (1, 28, 28), seed=index)
        assert found.images.min() >= 0
        assert found.images.max() <= 1
        assert found.iterations == len(found.history) == 120
        assert found.distance < found.history[0]
        gains.append(float(metrics.gain(found.images, batch.images)))
    assert sum(gains) / len(gains) > 2


def test_the_seed_decides_the_reconstruction(fashion: Dataset, lenet: nn.Module) -> None:
    batch = one_image(fashion, 0)
    gradients = share(lenet, batch)
    first, again, other = (
        attack_named("adam+cosine", 3)(lenet, gradients, batch.labels, (1, 28, 28), seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)


def test_the_model_and_the_gradient_are_left_alone(fashion: Dataset, small_net: nn.Module) -> None:
    batch = one_image(fashion, 0)
    before = {name: tensor.clone() for name, tensor in small_net.state_dict().items()}
    gradients = share(small_net, batch)
    copy = {name: tensor.clone() for name, tensor in gradients.items()}
    for name in ATTACKS:
        attack_named(name, 2)(small_net, gradients, batch.labels, (1, 28, 28))
    assert all(torch.equal(before[name], tensor) for name, tensor in small_net.state_dict().items())
    assert all(torch.equal(copy[name], tensor) for name, tensor in gradients.items())
    assert all(parameter.grad is None for parameter in small_net.parameters())


def test_a_run_that_blows_up_is_called_diverged(fashion: Dataset, small_net: nn.Module) -> None:
    batch = one_image(fashion, 0)
    wild, tame = (Inversion(l2_distance, Adam(lr), iterations=5, restarts=2, boxed=False) for lr in (1e36, 0.1))
    blown, fine = (attack(small_net, share(small_net, batch), batch.labels, (1, 28, 28)) for attack in (wild, tame))
    assert blown.diverged
    assert blown.iterations < 5
    assert bool(torch.isfinite(blown.images).all())
    assert not fine.diverged


def test_restarts_keep_the_best(fashion: Dataset, lenet: nn.Module) -> None:
    batch = one_image(fashion, 0)
    gradients = share(lenet, batch)
    single, several = (
        Inversion(cosine_distance, Adam(), iterations=5, restarts=n)(lenet, gradients, batch.labels, (1, 28, 28))
        for n in (1, 4)
    )
    assert several.distance <= single.distance


def break_gradient(gradients: Gradients, how: str) -> Gradients:
    name = next(iter(gradients))
    if how == "missing":
        return {key: value for key, value in gradients.items() if key != name}
    if how == "unknown":
        return gradients | {"extra": torch.zeros(1)}
    if how == "shape":
        return gradients | {name: gradients[name][:-1]}
    return gradients | {name: gradients[name] * torch.nan}


@pytest.mark.parametrize(
    ("how", "hint"), [("missing", "missing"), ("unknown", "unknown"), ("shape", "is"), ("nan", "NaN")]
)
def test_gradients_of_another_model_are_refused(fashion: Dataset, lenet: nn.Module, how: str, hint: str) -> None:
    batch = one_image(fashion, 0)
    with pytest.raises(GradveilError, match=hint):
        attack_named("adam+cosine", 1)(lenet, break_gradient(share(lenet, batch), how), batch.labels, (1, 28, 28))


def test_an_unknown_attack_gets_a_suggestion() -> None:
    with pytest.raises(GradveilError, match=r"adam\+cosine"):
        attack_named("adam-cosine")


def test_the_published_schedule_and_signed_steps() -> None:
    guess = torch.zeros(4, requires_grad=True)
    step = Adam(0.1).start(guess, 80)
    moves = []

    def closure() -> torch.Tensor:
        guess.grad = torch.tensor([3.0, -0.01, 7.0, -2.0])
        return torch.zeros(())

    for _ in range(80):
        before = guess.detach().clone()
        step(closure)
        moves.append((guess.detach() - before).tolist())
    # Only the sign counts, and the rate drops tenfold before steps 30, 50 and 70 of 80.
    for at, rate in ((0, 0.1), (29, 0.1), (30, 0.01), (50, 0.001), (70, 0.0001), (79, 0.0001)):
        assert moves[at] == pytest.approx([-rate, rate, -rate, rate], rel=1e-2)


def test_the_box_holds_during_the_search(fashion: Dataset, small_net: nn.Module) -> None:
    batch = one_image(fashion, 0)
    gradients = share(small_net, batch)
    lowest, highest = (normalization(small_net, 1)(torch.full((1, 1, 1), value)) for value in (0.0, 1.0))
    guesses: list[torch.Tensor] = []

    def watch(guess: torch.Tensor) -> torch.Tensor:
        guesses.append(guess.detach().clone())
        return guess.sum() * 0

    for boxed in (True, False):
        guesses.clear()
        attack = Inversion(cosine_distance, Adam(1.0), (watch,), iterations=5, boxed=boxed)
        attack(small_net, gradients, batch.labels, (1, 28, 28))
        inside = all(bool(((guess >= lowest) & (guess <= highest)).all()) for guess in guesses[1:])
        assert inside is boxed
