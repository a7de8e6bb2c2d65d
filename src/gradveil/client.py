"""One participant's step: from private images to the gradient it shares."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.types import Batch, Gradients


def share(model: nn.Module, batch: Batch) -> Gradients:
    """The gradient of the mean cross entropy of `batch`, by parameter name (FedSGD).

    Batch norm works in whatever mode the model is in; the model itself is left as it was.
    """
    names, parameters = trainable(model)
    loss = F.cross_entropy(model(batch.images), batch.labels)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def trainable(model: nn.Module) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
    """Names and tensors of the parameters whose gradients are shared, in the model's order."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return tuple(name for name, _ in named), tuple(parameter for _, parameter in named)
