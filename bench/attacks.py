"""Seconds per attack iteration against the published loop, whose `.backward()` also fills every parameter's gradient."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import MultiStepLR

from bench.measure import side_by_side
from gradveil.attacks import Evidence, Inversion, parse_attack
from gradveil.attacks.objectives import cosine_distance
from gradveil.attacks.together import Task, run_together
from gradveil.client import share, trainable_parameters
from gradveil.datasets import load
from gradveil.models import untrained_model
from gradveil.models.normalizing import normalization
from gradveil.parallel import using_one_thread
from gradveil.types import Batch, Dataset, Gradients, to_unit

MODELS = ("convnet-16", "resnet20")
TOGETHER = ("lenet", "convnet-4", "resnet20")
ITERATIONS = 200


def run(turns: int = 5) -> list[dict[str, object]]:
    """A row per model; `value` is how many times faster an iteration of ours is."""
    with using_one_thread():
        return [
            *(_alone(model, turns) for model in MODELS),
            *(_together(model, turns) for model in TOGETHER),
        ]


def evidence_of(model: nn.Module, dataset: Dataset, index: int) -> tuple[Evidence, Batch]:
    """The gradient of one test image, its label known."""
    batch = Batch(to_unit(dataset.test.images[index : index + 1]), dataset.test.labels[index : index + 1])
    return Evidence(model, share(model, batch), dataset.train.image_shape, labels=batch.labels), batch


def _alone(name: str, turns: int) -> dict[str, object]:
    dataset = load("fashion-mnist-tenth")
    model = untrained_model(name, dataset).eval()
    evidence, batch = evidence_of(model, dataset, 0)
    attack = parse_attack("adam+cosine", iterations=ITERATIONS)
    compared = side_by_side(
        lambda: attack(evidence),
        lambda: published_loop(model, evidence.gradients, batch.labels, seed=0, iterations=ITERATIONS),
        turns=turns,
    )
    settings = f"adam+cosine, one 28x28 image, one thread, {turns} turns of {ITERATIONS} iterations, against the published loop"
    return compared.row(f"attack iteration on {name}", settings, per=ITERATIONS)


def _together(name: str, turns: int) -> dict[str, object]:
    dataset = load("fashion-mnist-tenth")
    model = untrained_model(name, dataset).eval()
    evidences = [evidence_of(model, dataset, index)[0] for index in range(8)]
    attack = parse_attack("adam+cosine", iterations=ITERATIONS // 20)
    assert isinstance(attack, Inversion)
    compared = side_by_side(
        lambda: run_together([Task(attack, evidence, seed) for seed, evidence in enumerate(evidences)]),
        lambda: [attack(evidence, seed=seed) for seed, evidence in enumerate(evidences)],
        turns=turns,
    )
    settings = (
        f"adam+cosine, eight 28x28 images in one loop, one thread, {turns} turns, against ours one after the other"
    )
    return compared.row(f"eight attacks together on {name}", settings, per=8 * (ITERATIONS // 20))


def published_loop(
    model: nn.Module,
    gradients: Gradients,
    labels: Tensor,
    *,
    seed: int,
    iterations: int,
    tv: float = 1e-4,
    watch: Callable[[int, Tensor], None] = lambda done, images: None,
) -> Tensor:
    """Inverting Gradients as published (Geiping et al., 2020), stripped to the loop: the image in [0, 1].

    `watch` is shown the picture after every iteration.
    """
    parameters = trainable_parameters(model)[1]
    target = list(gradients.values())
    units = normalization(model, 1)
    guess = torch.randn((1, 1, 28, 28), generator=torch.Generator().manual_seed(seed)).requires_grad_()
    optimizer = torch.optim.Adam([guess], lr=0.1)
    schedule = MultiStepLR(optimizer, [iterations * part // 8 for part in (3, 5, 7)], gamma=0.1)
    lowest, highest = units(torch.zeros(1, 1, 1)), units(torch.ones(1, 1, 1))
    for done in range(iterations):
        optimizer.zero_grad()
        model.zero_grad()
        loss = F.cross_entropy(model(guess * units.std + units.mean), labels)
        found = torch.autograd.grad(loss, parameters, create_graph=True)
        across = (guess[..., :, 1:] - guess[..., :, :-1]).abs().mean()
        down = (guess[..., 1:, :] - guess[..., :-1, :]).abs().mean()
        (cosine_distance(found, target) + tv * (across + down)).backward()
        assert guess.grad is not None
        guess.grad.sign_()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            guess.clamp_(lowest, highest)
            watch(done + 1, guess * units.std + units.mean)
    model.zero_grad()
    return guess.detach() * units.std + units.mean
