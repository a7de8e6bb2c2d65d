"""What participants share: gradients, local updates, sums; and that a model is left as it was."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gradveil.client import Aggregate, FedAvg, format_client, parse_client, share
from gradveil.errors import GradveilError
from gradveil.models import build
from gradveil.types import Batch, Dataset, to_unit


def batch_of(fashion: Dataset, count: int) -> Batch:
    return Batch(to_unit(fashion.test.images[:count]), fashion.test.labels[:count])


def test_shared_gradient_equals_backward(fashion: Dataset, small_net: nn.Module) -> None:
    batch = batch_of(fashion, 3)
    gradients = share(small_net, batch)
    small_net.zero_grad()
    F.cross_entropy(small_net(batch.images), batch.labels).backward()
    for name, parameter in small_net.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(gradients[name], parameter.grad)
    small_net.zero_grad()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("client", [share, FedAvg(0.1, batch=2), Aggregate(2)], ids=["fedsgd", "fedavg", "sum"])
def test_the_model_is_left_as_it_was(fashion: Dataset, client: FedAvg, training: bool) -> None:
    model = build("convnet-4", (1, 28, 28), 10).train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    client(model, batch_of(fashion, 4))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(module.track_running_stats for module in model.modules() if isinstance(module, nn.BatchNorm2d))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("client", "optimize"),
    [
        (FedAvg(0.05, batch=2, epochs=3), partial(torch.optim.SGD, lr=0.05)),
        (FedAvg(0.05, batch=2, epochs=3, order=7), partial(torch.optim.SGD, lr=0.05)),
        (FedAvg(0.05, batch=2, epochs=3, momentum=0.9), partial(torch.optim.SGD, lr=0.05, momentum=0.9)),
        (FedAvg(0.002, batch=2, epochs=3, optimizer="adam"), partial(torch.optim.Adam, lr=0.002)),
    ],
    ids=lambda one: format_client(one) if isinstance(one, FedAvg) else "",
)
def test_local_training_against_torch(fashion: Dataset, client: FedAvg, optimize: Callable[..., Any]) -> None:
    model, copy = (build("lenet", (1, 28, 28), 10).eval() for _ in range(2))
    batch = batch_of(fashion, 5)
    shared = client(model, batch)
    optimizer = optimize(copy.parameters())
    for epoch in range(3):
        for piece in client._order(5, epoch).split(2):
            optimizer.zero_grad()
            F.cross_entropy(copy(batch.images[piece]), batch.labels[piece]).backward()
            optimizer.step()
    for (name, before), after in zip(model.named_parameters(), copy.parameters(), strict=True):
        torch.testing.assert_close(shared[name], (before - after).detach() / client.lr, atol=1e-3, rtol=1e-2)
    assert client.steps(5) == 9
    assert parse_client(format_client(client)) == client


def test_an_attacker_can_differentiate_adam_where_nothing_moves(fashion: Dataset) -> None:
    model, batch = build("mlp-8", (1, 28, 28), 10).eval(), batch_of(fashion, 2)  # black pixels have no gradient
    guess = Batch(batch.images.clone().requires_grad_(), batch.labels)
    shared = FedAvg(0.01, batch=1, epochs=2, optimizer="adam")(model, guess)
    (slope,) = torch.autograd.grad(sum(tensor.square().sum() for tensor in shared.values()), guess.images)
    assert bool(slope.isfinite().all())
    assert float(slope.abs().sum()) > 0


def test_one_local_step_is_the_gradient(fashion: Dataset, small_net: nn.Module) -> None:
    batch = batch_of(fashion, 4)
    once, gradient = FedAvg(1e-2, batch=4)(small_net, batch), share(small_net, batch)
    for name in gradient:
        torch.testing.assert_close(once[name], gradient[name], atol=2e-4, rtol=1e-2)


def test_a_sum_of_gradients_is_the_gradient_of_all_images(fashion: Dataset, small_net: nn.Module) -> None:
    batch = batch_of(fashion, 6)
    together, whole = Aggregate(3)(small_net, batch), share(small_net, batch)
    for name in whole:
        torch.testing.assert_close(together[name], whole[name], atol=1e-5, rtol=1e-4)
    with pytest.raises(GradveilError, match="6 images cannot be split evenly among 4 users"):
        Aggregate(4)(small_net, batch)


@pytest.mark.parametrize("client", [share, FedAvg(0.01, batch=1), Aggregate(2)], ids=["fedsgd", "fedavg", "sum"])
def test_what_is_shared_can_be_differentiated_by_the_images(fashion: Dataset, client: FedAvg) -> None:
    model = build("lenet", (1, 28, 28), 10).eval().double()
    labels = fashion.test.labels[:2]
    images = to_unit(fashion.test.images[:2]).double().requires_grad_()
    probe = {name: torch.randn_like(tensor) for name, tensor in client(model, Batch(images.detach(), labels)).items()}

    def along(images: torch.Tensor) -> torch.Tensor:
        return torch.stack(
            [(probe[name] * tensor).sum() for name, tensor in client(model, Batch(images, labels)).items()]
        ).sum()

    (slope,) = torch.autograd.grad(along(images), images)
    direction = torch.randn(images.shape, generator=torch.Generator().manual_seed(0)).double()
    step = 1e-5
    with torch.no_grad():
        ahead, back = images + step * direction, images - step * direction
    expected = (along(ahead) - along(back)) / (2 * step)
    torch.testing.assert_close((slope * direction).sum(), expected.detach(), rtol=1e-4, atol=1e-7)


def test_clients_by_name() -> None:
    assert parse_client("fedsgd") is share
    assert parse_client("fedavg:batch=2,lr=0.5,epochs=3,order=4") == FedAvg(0.5, 2, 3, order=4)
    assert parse_client("fedavg") == FedAvg(0.01, 1)
    shuffled = parse_client("fedavg:order=1")
    assert isinstance(shuffled, FedAvg)
    assert shuffled.without_order() == FedAvg(0.01, 1)
    for text, hint in (
        ("fedprox", "known: fedsgd, fedavg"),
        ("fedavg:speed=1", "unknown setting of fedavg 'speed'"),
        ("fedavg:lr=fast", "must be a number"),
        ("fedavg:batch=1.5", "whole number"),
        ("fedavg:lr=0", "above 0"),
        ("fedsgd:lr=1", "unknown client"),
    ):
        with pytest.raises(GradveilError, match=hint):
            parse_client(text)
