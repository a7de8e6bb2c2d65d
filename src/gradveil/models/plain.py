"""Networks without shortcuts: the papers' ConvNet, DLG's LeNet and a multilayer perceptron."""

from typing import Literal

from torch import Tensor, nn

# What is beyond the edge of an image: nothing, or its other side.
Padding = Literal["zeros", "circular"]


class ConvNet(nn.Module):
    """3x3 convolutions with bias, batch norm and ReLU; two max-pools of 3; one linear layer (Gao et al., 2021).

    With 8 convolutions it is the network their code really builds (a ninth was listed under a name already taken and
    vanished); with 9 it is the replication's copy.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        width: int,
        convolutions: int = 8,
        padding: Padding = "zeros",
    ) -> None:
        super().__init__()
        channels, height, length = image_shape
        before_pool = [width, 2 * width, 2 * width, 4 * width, 4 * width, 4 * width]
        after_pool = [4 * width] * (convolutions - len(before_pool))
        layers: list[nn.Module] = []
        for outputs in before_pool:
            layers += _convolution(channels, outputs, padding)
            channels = outputs
        layers.append(nn.MaxPool2d(3))
        for outputs in after_pool:
            layers += _convolution(channels, outputs, padding)
            channels = outputs
        layers.append(nn.MaxPool2d(3))
        self.features = nn.Sequential(*layers)
        self.classify = nn.Linear(channels * (height // 9) * (length // 9), classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classify(self.features(x).flatten(1))
        return logits


class ShiftInvariantNet(nn.Module):
    """The ConvNet's convolutions with circular padding and the largest value over all places: shifting an image changes nothing.

    Geiping et al. (2020) ask what of an image such a network can still give away.
    """

    def __init__(self, image_shape: tuple[int, int, int], classes: int, *, width: int) -> None:
        super().__init__()
        channels = image_shape[0]
        layers: list[nn.Module] = []
        for outputs in [width, 2 * width, 2 * width, *[4 * width] * 5]:
            layers += _convolution(channels, outputs, "circular")
            channels = outputs
        self.features = nn.Sequential(*layers)
        self.classify = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classify(self.features(x).amax((2, 3)))
        return logits


def _convolution(inputs: int, outputs: int, padding: Padding) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, padding_mode=padding), nn.BatchNorm2d(outputs), nn.ReLU()]


class LeNet(nn.Module):
    """Three 5x5 convolutions with sigmoids and a linear layer; weights uniform in [-0.5, 0.5] (Zhu et al., 2019)."""

    def __init__(self, image_shape: tuple[int, int, int], classes: int, *, width: int = 12) -> None:
        super().__init__()
        channels, height, length = image_shape
        self.features = nn.Sequential(
            nn.Conv2d(channels, width, 5, 2, 2),
            nn.Sigmoid(),
            nn.Conv2d(width, width, 5, 2, 2),
            nn.Sigmoid(),
            nn.Conv2d(width, width, 5, 1, 2),
            nn.Sigmoid(),
        )
        self.classify = nn.Linear(width * -(-height // 4) * -(-length // 4), classes)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classify(self.features(x).flatten(1))
        return logits


class MLP(nn.Module):
    """Four hidden layers with ReLU (Scheliga et al., 2022)."""

    def __init__(self, image_shape: tuple[int, int, int], classes: int, *, width: int = 1024) -> None:
        super().__init__()
        channels, height, length = image_shape
        layers: list[nn.Module] = [nn.Flatten()]
        inputs = channels * height * length
        for _ in range(4):
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits
