"""What an attacker has."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradveil.client import Client, batch_norm_mode, share, trainable_parameters
from gradveil.errors import GradveilError, NotFinite
from gradveil.models import ImageShape
from gradveil.models.batch_statistics import BatchStatistics
from gradveil.models.losses import BinaryCrossEntropy, loss_function
from gradveil.models.stochastic import drawing
from gradveil.types import Gradients, ImageSet

MOST_IMAGES = 100
# `adaptive` knows the defense, `draw` also what it drew at random, `simulate` tries it out on every guess.
Attacker = Literal["plain", "adaptive", "draw", "simulate"]


@dataclass(frozen=True)
class Evidence:
    """A shared gradient (or update), the model it came from, and how it came about as far as the attacker knows.

    - `gradients`: a tensor per trainable parameter; kept in the order of the model's parameters.
    - `image_shape`: (channels, height, width); `images`: how many images are behind the gradient.
    - `labels`: int64 (images,), or None when unknown; of a multi-label loss also 0 and 1, float (images, classes).
    - `client`: how a participant computes what it shares.
    - `public`: images of the same kind that are not private.
    - `statistics`: mean and variance of the private batch in layers of batch norm, which the model must have in training mode;
      for attacks that ask for them (`Attack.with_known_statistics`).

        Evidence(model, share(model, batch), (1, 28, 28), labels=batch.labels)
    """

    model: nn.Module
    gradients: Gradients
    image_shape: ImageShape
    images: int = 1
    labels: Tensor | None = None
    client: Client = share
    public: ImageSet | None = None
    statistics: BatchStatistics = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.images <= MOST_IMAGES:
            raise GradveilError(f"an attack rebuilds 1 to {MOST_IMAGES} images, got {self.images}")
        shape = tuple(self.image_shape)
        if len(shape) != 3 or not all(isinstance(side, int) and side > 0 for side in shape):
            raise GradveilError(f"expected an image shape (channels, height, width), got {self.image_shape}")
        check_gradients(self.model, self.gradients)
        names = trainable_parameters(self.model)[0]
        object.__setattr__(self, "gradients", {name: self.gradients[name].detach() for name in names})
        check_statistics(self.model, self.statistics)
        here = {
            name: (mean.to(self.device), variance.to(self.device)) for name, (mean, variance) in self.statistics.items()
        }
        object.__setattr__(self, "statistics", here)
        classes = self.classes
        if self.labels is None:
            return
        if isinstance(loss_function(self.model), BinaryCrossEntropy) and self.labels.is_floating_point():
            if self.labels.shape != (self.images, classes) or not bool(((self.labels >= 0) & (self.labels <= 1)).all()):
                expected = f"labels from 0 to 1, ({self.images}, {classes}), a row per image"
                raise GradveilError(f"expected {expected}, got {tuple(self.labels.shape)}")
            return
        if self.labels.dtype != torch.int64 or self.labels.shape != (self.images,):
            got = f"{self.labels.dtype} {tuple(self.labels.shape)}"
            raise GradveilError(f"labels must be int64 ({self.images},), one per image, got {got}")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= classes:
            raise GradveilError(f"labels must lie in 0..{classes - 1}, got {low}..{high}")

    @property
    def device(self) -> torch.device:
        return next(iter(self.gradients.values())).device

    @cached_property
    def classes(self) -> int:
        """How many classes the model has."""
        image = torch.zeros((1, *self.image_shape), device=self.device)
        try:
            with torch.no_grad(), batch_norm_mode(self.model, training=False), drawing(self.model, torch.zeros):
                logits = self.model(image)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise GradveilError(f"the model does not take images of shape {self.image_shape}: {error}") from error
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise GradveilError("the model must return logits (images, classes)")
        return int(logits.shape[1])

    @cached_property
    def target(self) -> tuple[Tensor, ...]:
        """The shared tensors in the order of the model's parameters."""
        return tuple(self.gradients.values())


def check_gradients(model: nn.Module, gradients: Gradients) -> None:
    """Refuse tensors that cannot be that model's gradient."""
    names, parameters = trainable_parameters(model)
    if set(names) != set(gradients):
        name = sorted(set(names) ^ set(gradients))[0]
        problem = "is missing" if name in names else "is unknown to the model"
        raise GradveilError(f"gradient and model differ: {name!r} {problem}")
    for name, parameter in zip(names, parameters, strict=True):
        shared = gradients[name]
        if not isinstance(shared, Tensor) or not shared.is_floating_point():
            got = shared.dtype if isinstance(shared, Tensor) else type(shared).__name__
            raise GradveilError(f"gradient {name!r}: expected a tensor of floating point numbers, got {got}")
        if shared.shape != parameter.shape:
            raise GradveilError(f"gradient {name!r}: expected {tuple(parameter.shape)}, got {tuple(shared.shape)}")
        if not bool(torch.isfinite(shared).all()):
            raise NotFinite(f"gradient {name!r}: expected finite values, got NaN or infinity")


def check_statistics(model: nn.Module, statistics: BatchStatistics) -> None:
    """Refuse mean and variance that no batch norm layer of the model, at work, can have seen."""
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, _BatchNorm) and layer.training}
    for name, moments in statistics.items():
        if name not in layers:
            raise GradveilError(f"batch statistics: {name!r} is no batch norm layer of the model in training mode")
        if len(moments) != 2 or not all(isinstance(tensor, Tensor) for tensor in moments):
            raise GradveilError(
                f"batch statistics of {name!r}: expected a mean and a variance, got {type(moments).__name__}"
            )
        for tensor in moments:
            if tensor.shape != (layers[name].num_features,) or not bool(torch.isfinite(tensor).all()):
                expected = f"finite mean and variance of {layers[name].num_features} channels"
                raise GradveilError(f"batch statistics of {name!r}: expected {expected}, got {tuple(tensor.shape)}")
