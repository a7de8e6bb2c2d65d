"""Labels and images that are read off a gradient."""

import pytest
import torch
from torch import nn

from gradveil.attacks import Evidence, parse_attack
from gradveil.attacks.analytic import layer_inputs
from gradveil.attacks.labels import label_accuracy, read_labels
from gradveil.client import Aggregate, Client, FedAvg, share
from gradveil.errors import GradveilError
from gradveil.leakage import metrics
from gradveil.models import build
from gradveil.types import Batch, Dataset, to_unit

SHAPE = (1, 28, 28)


def _network(name: str) -> nn.Module:
    return build(name, SHAPE, 10, seed=0, mean=(0.29,), std=(0.35,)).eval()


def _evidence(model: nn.Module, fashion: Dataset, indices: list[int], client: Client = share) -> tuple[Evidence, Batch]:
    chosen = fashion.test.take(indices)
    batch = Batch(to_unit(chosen.images), chosen.labels)
    return Evidence(model, client(model, batch), SHAPE, images=len(indices), client=client), batch


@pytest.mark.parametrize("name", ["lenet", "convnet-4", "mlp-64", "resnet20"])
def test_the_label_of_one_image_is_always_read(name: str, fashion: Dataset) -> None:
    model = _network(name)
    for index in range(10):
        evidence, batch = _evidence(model, fashion, [index])
        assert torch.equal(read_labels(evidence), batch.labels)


def _recovered(name: str, client: Client, fashion: Dataset, batches: int) -> float:
    model = _network(name)
    shares = []
    for start in range(0, 8 * batches, 8):
        evidence, batch = _evidence(model, fashion, list(range(start, start + 8)), client)
        assert start > 0 or len(batch.labels.unique()) < 8
        shares.append(label_accuracy(read_labels(evidence), batch.labels))
    return sum(shares) / len(shares)


@pytest.mark.parametrize("client", [share, Aggregate(2)], ids=["alone", "sum of two"])
@pytest.mark.parametrize("name", ["lenet", "convnet-4", "mlp-64", "resnet20"])
def test_batches_of_eight_with_repeated_labels(name: str, client: Client, fashion: Dataset) -> None:
    assert _recovered(name, client, fashion, batches=10) >= 0.95


@pytest.mark.parametrize("name", ["lenet", "convnet-4", "mlp-64", "resnet20"])
def test_labels_behind_local_training_are_less_sure(name: str, fashion: Dataset) -> None:
    """Predictions move with the weights; one label per class and guess would get a fifth right."""
    assert _recovered(name, FedAvg(0.01, batch=2), fashion, batches=4) >= 0.7


def test_right_share_counts_repetitions() -> None:
    assert label_accuracy(torch.tensor([1, 1, 2]), torch.tensor([2, 1, 1])) == 1
    assert label_accuracy(torch.tensor([1, 1, 1]), torch.tensor([1, 2, 3])) == pytest.approx(1 / 3)
    assert label_accuracy(torch.tensor([9]), torch.tensor([0])) == 0


def test_labels_cannot_be_read_without_a_last_bias(fashion: Dataset) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False))
    with pytest.raises(GradveilError, match="labels cannot be read"):
        read_labels(_evidence(model, fashion, [0])[0])


def test_the_closed_form_reads_the_image(fashion: Dataset) -> None:
    model = _network("mlp-64")
    for index in range(10):
        evidence, batch = _evidence(model, fashion, [index])
        found = parse_attack("analytic")(evidence)
        assert float(metrics.psnr(found.images, batch.images)) >= 60
        assert found.ended == "matched"


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Sigmoid, nn.Tanh])
def test_the_recursion_passes_layers_without_a_bias(fashion: Dataset, activation: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 40, bias=False),
        activation(),
        nn.Linear(40, 30, bias=False),
        activation(),
        nn.Linear(30, 10),
    ).double()
    image = to_unit(fashion.test.images[:1]).double()
    gradients = share(model, Batch(image, fashion.test.labels[:1]))
    inputs = layer_inputs(model, gradients)
    expected = [image.flatten(1), model[:3](image), model[:5](image)]
    assert len(inputs) == 3
    for found, truth in zip(inputs, expected, strict=True):
        torch.testing.assert_close(found[:1], truth, atol=1e-6, rtol=1e-4)


def test_the_closed_form_of_a_batch_shows_mixtures(fashion: Dataset) -> None:
    evidence, batch = _evidence(_network("mlp-64"), fashion, [0, 1])
    found = parse_attack("analytic")(evidence)
    assert found.images.shape == batch.images.shape
    # A neuron that only one image excites shows that image; the other is a mixture.
    assert float(metrics.psnr(found.images, batch.images).min()) < 60


def test_where_the_closed_form_does_not_apply(fashion: Dataset) -> None:
    with pytest.raises(GradveilError, match=r"no closed form: .*got Conv2d"):
        parse_attack("analytic")(_evidence(_network("lenet"), fashion, [0])[0])
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False))
    with pytest.raises(GradveilError, match=r"no closed form: .*bias"):
        layer_inputs(model, share(model, Batch(to_unit(fashion.test.images[:1]), fashion.test.labels[:1])))
