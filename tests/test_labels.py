"""Labels and images that are read off a gradient."""

import pytest
import torch
from torch import nn

from gradveil import metrics
from gradveil.attacks.analytic import read_off
from gradveil.attacks.labels import recover_labels
from gradveil.client import share
from gradveil.errors import GradveilError
from gradveil.models import build
from gradveil.types import Batch, Dataset, to_unit


def _network(name: str, fashion: Dataset) -> nn.Module:
    return build(name, fashion.train.image_shape, 10, seed=0, mean=(0.29,), std=(0.35,)).eval()


@pytest.mark.parametrize("name", ["lenet", "convnet-4", "mlp-64", "resnet20-4"])
def test_the_label_of_one_image_is_always_read(name: str, fashion: Dataset) -> None:
    model = _network(name, fashion)
    for index in range(10):
        batch = Batch(to_unit(fashion.test.images[index : index + 1]), fashion.test.labels[index : index + 1])
        found = recover_labels(model, share(model, batch), 1, fashion.train.image_shape)
        assert torch.equal(found, batch.labels)


@pytest.mark.parametrize("name", ["lenet", "convnet-4", "mlp-64", "resnet20-4"])
def test_batches_of_eight_with_repeated_labels(name: str, fashion: Dataset) -> None:
    model = _network(name, fashion)
    right = total = 0
    for start in range(0, 160, 8):
        chosen = torch.arange(start, start + 8)
        labels = fashion.test.labels[chosen]
        assert start > 0 or len(labels.unique()) < 8
        found = recover_labels(model, share(model, Batch(to_unit(fashion.test.images[chosen]), labels)), 8, (1, 28, 28))
        counts = [torch.bincount(one, minlength=10) for one in (found, labels)]
        right += int(torch.minimum(*counts).sum())
        total += 8
    assert right / total >= 0.95


def test_the_closed_form_reads_the_image(fashion: Dataset) -> None:
    model = _network("mlp-64", fashion)
    for index in range(10):
        batch = Batch(to_unit(fashion.test.images[index : index + 1]), fashion.test.labels[index : index + 1])
        found = read_off(model, share(model, batch), fashion.train.image_shape)
        assert float(metrics.psnr(found.image, batch.images)) >= 60
        # The recursion: what goes into the layers behind the first.
        inside = model(batch.images)
        assert len(found.inputs) > 1
        assert inside.shape == (1, 10)


def test_where_the_closed_form_does_not_apply(fashion: Dataset) -> None:
    model = _network("lenet", fashion)
    batch = Batch(to_unit(fashion.test.images[:1]), fashion.test.labels[:1])
    with pytest.raises(GradveilError, match="no closed form: Conv2d"):
        read_off(model, share(model, batch), fashion.train.image_shape)
