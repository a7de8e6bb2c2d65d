"""Gradients of many images in one pass, against autograd image by image."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gradveil.models import build
from gradveil.scores import similarity
from gradveil.scores.similarity import Products, Similarity


def _groups(shape: tuple[int, int, int], groups: int = 2, size: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(0)
    return torch.rand(groups, size, *shape, generator=chance), torch.randint(0, 10, (groups,), generator=chance)


def _slowly(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Products:
    slow = Similarity(model)
    slow.batched = False
    return slow(images, labels)


class GroupNormed(nn.Module):
    """Strides, kernels and paddings that differ by axis, a group norm, a layer without bias, a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, (3, 5), (2, 1), (0, 2))
        self.norm = nn.GroupNorm(4, 8)
        self.frozen = nn.Conv2d(8, 8, 1).requires_grad_(False)
        self.second = nn.Conv2d(8, 6, 2, bias=False)
        self.head = nn.Linear(6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        return self.head(self.second(self.frozen(x)).mean((2, 3)))


NETWORKS = {
    "resnet20": lambda: build("resnet20-4", (3, 20, 20), 10),
    "bottlenecks": lambda: build("resnet152-2", (3, 20, 20), 10),
    "convnet": lambda: build("convnet-4", (3, 20, 20), 10),
    "lenet": lambda: build("lenet", (3, 20, 20), 10),
    "mlp": lambda: build("mlp-32", (3, 20, 20), 10),
    "group norm": GroupNormed,
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("per_tensor", [False, True])
def test_equal_to_autograd(name: str, per_tensor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = NETWORKS[name]().double().eval()
    images, labels = _groups((3, 20, 20))
    fast = Similarity(model)
    expected = _slowly(model, images.double(), labels).cosines(per_tensor=per_tensor)
    assert torch.allclose(fast(images.double(), labels).cosines(per_tensor=per_tensor), expected, atol=1e-9)
    assert fast.batched
    # In the smallest pieces, too.
    monkeypatch.setattr(similarity, "NUMBERS_AT_ONCE", 1)
    assert torch.allclose(fast(images.double(), labels).cosines(per_tensor=per_tensor), expected, atol=1e-9)
    assert all(parameter.grad is None for parameter in model.parameters())


class Tied(nn.Module):
    """Every layer is known, but one of them is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 12)
        self.head = nn.Linear(12, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(torch.relu(self.layer(x.flatten(1)))))


class Borrowed(Tied):
    """Uses a layer's weight without calling the layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.linear(x.flatten(1), self.layer.weight, self.layer.bias))


class BehindTheBack(Tied):
    """Calls the layer and uses its weight a second time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.layer(x.flatten(1))) @ self.layer.weight)


class Unknown(Tied):
    """A parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x.flatten(1)) * self.scale)


class Grouped(nn.Module):
    """A depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 1, groups=3)
        self.head = nn.Linear(6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).mean((2, 3)))


@pytest.mark.parametrize("network", [Tied, Borrowed, BehindTheBack, Unknown, Grouped])
def test_other_models_fall_back_and_are_right(network: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = network().eval()
    images, labels = _groups((3, 2, 2))
    fast = Similarity(model)
    found = fast(images, labels)
    assert not fast.batched
    expected = _slowly(model, images, labels)
    assert torch.equal(found.dots, expected.dots)
    assert torch.equal(found.squares, expected.squares)


def test_cosines_of_known_products() -> None:
    # Two tensors, gradients (1, 0 | 2) and (0, 1 | 2) against the first of them.
    dots, squares = torch.tensor([[[1.0, 4], [0, 4]]]), torch.tensor([[[1.0, 4], [1, 4]]])
    products = Products(dots, squares)
    assert products.cosines(per_tensor=True).tolist() == [[1, 0.5]]
    assert products.cosines(per_tensor=False)[0].tolist() == pytest.approx([1, 0.8])
    assert products.first(1).cosines(per_tensor=False).tolist() == [[1, 0]]


def test_a_gradient_of_nothing_is_like_nothing() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 10, bias=False))
    nn.init.zeros_(model[1].weight)
    black = torch.zeros(1, 2, 1, 2, 2)
    assert Similarity(model)(black, torch.tensor([0])).cosines(per_tensor=False).tolist() == [[0, 0]]
