"""Normalisation: as a layer of a model, or before a model whose images were normalised by whoever loaded them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradveil.errors import GradveilError
from gradveil.models.structure import copy_module


class Normalize(nn.Module):
    """Subtract the channel means and divide by the channel deviations of the training images."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


@dataclass(frozen=True)
class InputNormalization:
    """A hook before a model: (x - mean) / std per channel. It is no layer, so that the model's names stay as they are."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
            got = f"{len(self.mean)} and {len(self.std)}"
            raise GradveilError(f"expected as many means as deviations, 1 or 3 (one per channel), got {got}")
        if not all(0 < value < float("inf") for value in self.std) or not all(abs(value) < 1e6 for value in self.mean):
            raise GradveilError(f"expected finite means and deviations above 0, got {self.mean} and {self.std}")
        if any(value > 1 for value in self.mean):
            raise GradveilError(
                f"expected means of pixels from 0 to 1, got {self.mean}; for pixels up to 255 divide means and deviations by 255"
            )

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        images = inputs[0]
        mean, std = (torch.tensor(values).view(-1, 1, 1).to(images) for values in (self.mean, self.std))
        return (images - mean) / std, *inputs[1:]

    def __str__(self) -> str:
        return "/".join(",".join(f"{value:.9g}" for value in values) for values in (self.mean, self.std))


def with_normalization(model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """A copy of `model` that takes images in [0, 1] and normalises them first, as the training's loader does.

    For models whose images are normalised outside of the network, such as by `transforms.Normalize(mean, std)`. Parameters
    keep their names, so that checkpoints and gradients fit. Attacks search in pixels.

        model = with_normalization(my_model, mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26))
    """
    copied = copy_module(model)
    copied.register_forward_pre_hook(InputNormalization(tuple(map(float, mean)), tuple(map(float, std))))
    return copied


def parse_normalization(text: str) -> InputNormalization:
    """`0.5/0.25`, or a number per channel: `0.49,0.48,0.45/0.25,0.24,0.26`."""
    try:
        mean, std = (tuple(float(part) for part in side.split(",")) for side in text.split("/"))
    except ValueError:
        raise GradveilError(
            f"expected means/deviations per channel, such as 0.5/0.25 or 0.49,0.48,0.45/0.25,0.24,0.26, got {text!r}"
        ) from None
    return InputNormalization(mean, std)


def normalization(model: nn.Module, channels: int) -> Normalize:
    """The model's own normalisation, a layer or before the model, or a plausible one for a model without."""
    for module in model.modules():
        if isinstance(module, Normalize):
            return module
    before = input_normalization(model) or InputNormalization((0.5,) * channels, (0.25,) * channels)
    layer, parameter = Normalize(before.mean, before.std), next(model.parameters(), None)
    return layer if parameter is None else layer.to(parameter.device)


def is_normalized(model: nn.Module) -> bool:
    """Whether the model normalises images itself, or something before it does."""
    return input_normalization(model) is not None or any(isinstance(one, Normalize) for one in model.modules())


def input_normalization(model: nn.Module) -> InputNormalization | None:
    """What `with_normalization` put before a model."""
    hooks = [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]
    return next((hook for hook in hooks if isinstance(hook, InputNormalization)), None)


def to_pixels(model: nn.Module, inputs: Tensor) -> Tensor:
    """What goes into a model's first layer (B, C, H, W) as the pixels that the model was given."""
    layers = [module for module in model.modules() if isinstance(module, Normalize)]
    if not layers and input_normalization(model) is not None:
        layers = [normalization(model, inputs.shape[1])]
    for layer in layers:
        inputs = inputs * layer.std + layer.mean
    return inputs
