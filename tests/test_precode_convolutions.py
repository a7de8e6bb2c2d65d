"""PRECODE's bottleneck in front of convolutions."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from gradveil.attacks import Evidence, Inversion, parse_attack
from gradveil.client import share, trainable_parameters
from gradveil.defenses import Precode
from gradveil.defenses.precode import VariationalBottleneck, bottlenecks
from gradveil.errors import GradveilError
from gradveil.leakage import metrics
from gradveil.models import build
from gradveil.models.stochastic import collecting_penalties, drawing, replay, stochastic_layers
from gradveil.randomness import generator
from gradveil.types import Batch, Dataset, to_unit

SHAPE = (1, 28, 28)


def batch_of(fashion: Dataset, images: int) -> Batch:
    return Batch(to_unit(fashion.test.images[:images]), fashion.test.labels[:images])


def test_by_hand() -> None:
    bottleneck = VariationalBottleneck(nn.Conv2d(3, 5, 1), 2, 0.3, seed=0)
    x, eps = torch.randn(4, 3, 6, 7, generator=generator(1)), torch.randn(4, 2, 6, 7, generator=generator(2))
    with drawing(bottleneck, replay(eps.flatten())), collecting_penalties(bottleneck) as costs:
        found = bottleneck(x)
    statistics = F.conv2d(x, bottleneck.encoder.weight, padding=1)
    mu, sigma = statistics[:, :2], F.softplus(statistics[:, 2:])
    torch.testing.assert_close(found, F.conv2d(mu + sigma * eps, bottleneck.decoder.weight))
    # Summed over the k values, averaged over images and places.
    (cost,) = costs
    torch.testing.assert_close(cost, 0.3 * kl_divergence(Normal(mu, sigma), Normal(0.0, 1.0)).sum(1).mean())


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Conv1d(3, 4, 2), (2, 3, 9)), (nn.Conv3d(3, 4, 2), (2, 3, 5, 6, 7)), (nn.Conv2d(3, 4, 2), (3, 8, 8))],
)
def test_every_kind_of_feature_map_keeps_its_shape(
    layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, shape: tuple[int, ...]
) -> None:
    bottleneck = VariationalBottleneck(layer, 2, 1.0, seed=0)
    assert bottleneck(torch.zeros(shape)).shape == shape
    assert (
        bottleneck.sample.moments(bottleneck.encoder(torch.zeros(shape)))[0].numel()
        == 2 * torch.zeros(shape).numel() // 3
    )


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("lenet", ("net.features.0",)),
        ("lenet", ("net.features.2", "net.classify")),
        ("convnet-4", ("net.features.3",)),
        ("resnet20", ("net.stem",)),
        ("resnet20", ("net.blocks.3.shortcut.0", "net.blocks.3.conv1")),
    ],
)
def test_it_stands_before_any_layer_of_a_network(fashion: Dataset, name: str, at: tuple[str, ...]) -> None:
    model = build(name, SHAPE, 10).eval()
    defended = Precode(k=3, at=at).network(model, seed=1)
    assert set(bottlenecks(defended)) == {f"{layer}.precode" for layer in at}
    gradients = share(defended, batch_of(fashion, 2))
    assert set(gradients) == set(trainable_parameters(defended)[0])
    assert all(bool(value.any()) for value in gradients.values())
    assert defended(batch_of(fashion, 2).images).shape == (2, 10)


def test_what_is_no_layer_is_refused_by_name() -> None:
    model = build("lenet", SHAPE, 10)
    with pytest.raises(GradveilError, match=r"did you mean .net\.features\.0"):
        Precode(at=("net.feature.0",)).network(model, seed=0)
    with pytest.raises(GradveilError, match="fully connected layer or convolution"):
        Precode(at=("net.features.1",)).network(model, seed=0)


def test_a_network_without_a_fully_connected_layer_wants_a_name() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(GradveilError, match="name a convolution"):
        Precode().network(model, seed=0)
    defended = Precode(k=2, at=("0",)).network(model, seed=0)
    assert defended(torch.zeros(2, 1, 9, 9)).shape == (2, 4)


@pytest.mark.long
def test_who_searches_for_the_sample_gets_through_deep_convolutions(fashion: Dataset) -> None:
    batch = batch_of(fashion, 1)
    defense = Precode(k=2, at=("net.features.4",))
    lenet = build("lenet", SHAPE, 10, mean=[0.286], std=[0.353]).eval()
    defended = defense.network(lenet, seed=0)
    evidence = Evidence(defended, share(defended, batch), SHAPE, 1, batch.labels)
    plain = parse_attack("idlg", iterations=40, restarts=1)
    answer = defense.adapt(plain, evidence)
    assert isinstance(plain, Inversion)
    assert answer == replace(plain, draws="searched")
    assert [layer.drawn for layer in stochastic_layers(defended).values()] == [1]
    assert float(metrics.psnr(plain(evidence).images, batch.images)) < 10
    assert float(metrics.psnr(answer(evidence).images, batch.images)) > 20
