"""Seconds per attack iteration against the published loop, whose `.backward()` also fills every parameter's gradient."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.measure import side_by_side
from gradveil.attacks import attack_named
from gradveil.attacks.objectives import cosine_distance
from gradveil.attacks.priors import TotalVariation
from gradveil.client import share, trainable
from gradveil.datasets import channel_statistics, load
from gradveil.models import Normalize, build
from gradveil.parallel import one_thread
from gradveil.types import Batch, Gradients, to_unit

MODELS = ("convnet-16", "resnet20")
ITERATIONS = 40


def run(turns: int = 9) -> list[dict[str, object]]:
    """One row per model; `value` is how many times faster an iteration of ours is."""
    with one_thread():
        return [_row(model, turns) for model in MODELS]


def _row(name: str, turns: int) -> dict[str, object]:
    dataset = load("fashion-mnist-tenth")
    mean, std = channel_statistics(dataset.train.images)
    model = build(name, dataset.train.image_shape, 10, mean=mean, std=std).eval()
    batch = Batch(to_unit(dataset.test.images[:1]), dataset.test.labels[:1])
    gradients = share(model, batch)
    attack = attack_named("adam+cosine", ITERATIONS)
    compared = side_by_side(
        lambda: attack(model, gradients, batch.labels, dataset.train.image_shape),
        lambda: published_loop(model, gradients, batch.labels, Normalize(mean, std)),
        turns=turns,
    )
    settings = f"adam+cosine, one 28x28 image, one thread, {turns} turns of {ITERATIONS} iterations, against the published loop"
    return compared.row(f"attack iteration on {name}", settings, per=ITERATIONS)


def published_loop(model: nn.Module, gradients: Gradients, labels: Tensor, units: Normalize) -> Tensor:
    """Inverting Gradients as published (Geiping et al., 2020), stripped to the loop."""
    parameters = trainable(model)[1]
    target = list(gradients.values())
    guess = torch.randn((1, 1, 28, 28), generator=torch.Generator().manual_seed(0)).requires_grad_()
    optimizer = torch.optim.Adam([guess], lr=0.1)
    lowest, highest = units(torch.zeros(1, 1, 1)), units(torch.ones(1, 1, 1))
    prior = TotalVariation(1e-4)
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        model.zero_grad()
        loss = F.cross_entropy(model(guess * units.std + units.mean), labels)
        found = torch.autograd.grad(loss, parameters, create_graph=True)
        (cosine_distance(found, target) + prior(guess)).backward()
        assert guess.grad is not None
        guess.grad.sign_()
        optimizer.step()
        with torch.no_grad():
            guess.clamp_(lowest, highest)
    model.zero_grad()
    return guess.detach()
