"""The optimizer of every training here."""

from collections.abc import Iterable

import torch
from torch import nn


def sgd(parameters: Iterable[nn.Parameter], *, lr: float, momentum: float, weight_decay: float) -> torch.optim.SGD:
    """SGD with Nesterov momentum where there is any."""
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=momentum > 0)
