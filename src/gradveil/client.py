"""One participant's work: from private images to what it shares.

A client is differentiable: where the images (or soft labels) ask for gradients, what is shared can be differentiated by them.
That is how an attacker tries a guess out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from gradveil.errors import GradveilError
from gradveil.models.losses import loss_function
from gradveil.models.stochastic import collecting_penalties
from gradveil.models.structure import structure_of
from gradveil.naming import format_setting, format_settings, parse_settings, unknown
from gradveil.randomness import generator
from gradveil.types import Batch, Gradients

# How local steps go: along the gradient (with momentum where there is some), or as Adam does.
LocalOptimizer = Literal["sgd", "adam"]
# Adam's usual settings (Kingma and Ba, 2015).
_BETAS, _EPSILON = (0.9, 0.999), 1e-8
# (model, batch) -> what is shared; the model is left as it was.
Client = Callable[[nn.Module, Batch], Gradients]


def share(model: nn.Module, batch: Batch) -> Gradients:
    """The gradient of the mean loss of `batch`, by parameter name (FedSGD): of cross entropy, or `with_loss` says which.

    Batch norm works in whatever mode the model is in; its running statistics are not touched.

        share(model, Batch(images, labels))["classify.weight"]
    """
    with freezing_statistics(model):
        return gradient(model, batch)


def gradient(model: nn.Module, batch: Batch) -> Gradients:
    """As `share`, but batch norm in training mode remembers the batch, as it does while a network is trained."""
    names, parameters = trainable_parameters(model)
    loss = loss_of(model, batch)
    # A parameter that the loss does not depend on has the gradient zero.
    keep = _is_differentiable(batch)
    found = torch.autograd.grad(loss, parameters, create_graph=keep, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


@dataclass(frozen=True)
class FedAvg:
    """Share what `epochs` passes over the images change, in pieces of `batch`: (w - w after) / lr.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017. Divided by the
    rate, a single step of SGD is the gradient itself. `order` is a seed: with it every pass has an order of its own, without it
    images come as they are given. Steps are those of SGD, with `momentum` where it is given, or of Adam; both begin anew with
    every message.

        update = FedAvg(lr=0.01, batch=8)(model, batch)
    """

    lr: float = 0.01
    batch: int = 1
    epochs: int = 1
    order: int | None = None
    optimizer: LocalOptimizer = "sgd"
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if self.optimizer not in get_args(LocalOptimizer):
            raise unknown(self.optimizer, get_args(LocalOptimizer), "local optimizer")
        if not 0 <= self.momentum < 1 or (self.momentum and self.optimizer != "sgd"):
            raise GradveilError(
                f"expected a momentum of sgd from 0 to below 1, got {self.momentum:g}, {self.optimizer}"
            )
        if self.batch < 1 or self.epochs < 1 or not 0 < self.lr < 1000:
            raise GradveilError(
                f"fedavg needs batch, epochs and lr above 0, got {self.batch}, {self.epochs}, {self.lr:g}"
            )

    def __call__(self, model: nn.Module, batch: Batch) -> Gradients:
        with freezing_statistics(model):
            return self.train_from(model, batch)

    def train_from(self, model: nn.Module, batch: Batch) -> Gradients:
        """The same, but batch norm in training mode remembers the batches, as it does while a network is trained."""
        names, start = trainable_parameters(model)
        keep, weights = _is_differentiable(batch), start
        direction = _adam() if self.optimizer == "adam" else _momentum(self.momentum)
        for epoch in range(self.epochs):
            for piece in torch.split(self._order(len(batch.images), epoch), self.batch):
                if not keep:
                    weights = tuple(weight.detach().requires_grad_() for weight in weights)
                chosen = Batch(batch.images[piece], batch.labels[piece])
                loss = loss_of(model, chosen, dict(zip(names, weights, strict=True)))
                found = torch.autograd.grad(loss, weights, create_graph=keep, allow_unused=True, materialize_grads=True)
                weights = tuple(w - self.lr * step for w, step in zip(weights, direction(found), strict=True))
        changes = ((before - after) / self.lr for before, after in zip(start, weights, strict=True))
        return {name: change if keep else change.detach() for name, change in zip(names, changes, strict=True)}

    def steps(self, images: int) -> int:
        """How many steps `images` images make."""
        return self.epochs * -(-images // self.batch)

    def without_order(self) -> "FedAvg":
        """The same training, as an attacker who does not know the order assumes it."""
        return replace(self, order=None)

    def _order(self, images: int, epoch: int) -> Tensor:
        if self.order is None:
            return torch.arange(images)
        return torch.randperm(images, generator=generator(self.order, "local order", epoch))


Direction = Callable[[Sequence[Tensor]], Sequence[Tensor]]


def _momentum(factor: float) -> Direction:
    """The gradient and what is left of those before it, as torch.optim.SGD has it."""
    velocity: Sequence[Tensor] = ()

    def direction(gradient: Sequence[Tensor]) -> Sequence[Tensor]:
        nonlocal velocity
        velocity = [factor * v + g for v, g in zip(velocity, gradient, strict=True)] if velocity else gradient
        return velocity

    return direction if factor else lambda gradient: gradient


def _adam() -> Direction:
    """As torch.optim.Adam has it; differentiable also where a gradient is zero."""
    means: Sequence[Tensor] = ()
    squares: Sequence[Tensor] = ()
    count = 0

    def direction(gradient: Sequence[Tensor]) -> Sequence[Tensor]:
        nonlocal means, squares, count
        (first, second), count = _BETAS, count + 1
        before = means or [torch.zeros_like(g) for g in gradient], squares or [torch.zeros_like(g) for g in gradient]
        means = [first * m + (1 - first) * g for m, g in zip(before[0], gradient, strict=True)]
        squares = [second * v + (1 - second) * g * g for v, g in zip(before[1], gradient, strict=True)]
        # The root of zero has no slope, and nothing moves there.
        roots = [(v / (1 - second**count)).clamp_min(torch.finfo(v.dtype).tiny).sqrt() for v in squares]
        return [m / (1 - first**count) / (root + _EPSILON) for m, root in zip(means, roots, strict=True)]

    return direction


@dataclass(frozen=True)
class Aggregate:
    """The mean of what `users` share, each with an equal part of the batch: all that secure aggregation shows."""

    users: int
    client: Client = share

    def __post_init__(self) -> None:
        if self.users < 1:
            raise GradveilError(f"an aggregate needs at least 1 user, got {self.users}")

    def __call__(self, model: nn.Module, batch: Batch) -> Gradients:
        if len(batch.images) % self.users:
            raise GradveilError(f"{len(batch.images)} images cannot be split evenly among {self.users} users")
        each = len(batch.images) // self.users
        parts = zip(torch.split(batch.images, each), torch.split(batch.labels, each), strict=True)
        shared = [self.client(model, Batch(images, labels)) for images, labels in parts]
        return {name: torch.stack([one[name] for one in shared]).mean(0) for name in shared[0]}


def training_client(client: Client) -> Client:
    """The same client with batch norm that remembers the batches: for training instead of measuring."""
    if isinstance(client, FedAvg):
        return client.train_from
    if client is share:
        return gradient
    raise GradveilError(f"a participant trains with fedsgd or fedavg, got {client}")


def parse_client(text: str) -> Client:
    """`fedsgd`, or `fedavg:batch=1,lr=0.01,epochs=1,order=0` with the settings of `FedAvg`."""
    name, colon, settings = text.partition(":")
    if name == "fedsgd" and not colon:
        return share
    if name != "fedavg":
        raise unknown(text, ("fedsgd", "fedavg"), "client", more=", such as fedavg:batch=1,lr=0.01,epochs=1,order=0")
    return parse_settings(FedAvg, name, settings if colon else None, example="fedavg:lr=0.01")


def format_client(client: Client) -> str:
    """The text that `parse_client` reads; your own client is called by its name."""
    if client is share:
        return "fedsgd"
    if isinstance(client, FedAvg):
        settings = f"lr={format_setting(client.lr)},batch={client.batch},epochs={client.epochs}"
        if client.optimizer != "sgd":
            settings += f",optimizer={client.optimizer}"
        if client.momentum:
            settings += f",momentum={format_setting(client.momentum)}"
        return f"fedavg:{settings}" + ("" if client.order is None else f",order={client.order}")
    return format_settings(client, getattr(client, "__name__", type(client).__name__))


def loss_of(model: nn.Module, batch: Batch, replaced: Mapping[str, Tensor] | None = None) -> Tensor:
    """The mean loss and what the model's layers add to it, with some of its parameters or buffers replaced."""
    return logits_and_loss(model, batch, replaced)[1]


def logits_and_loss(
    model: nn.Module, batch: Batch, replaced: Mapping[str, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """What the model says of the images (B, classes), and the loss as `loss_of` gives it."""
    # Attackers differentiate twice, which of all kernels for attention only the plain one can.
    with collecting_penalties(model) as costs, sdpa_kernel(SDPBackend.MATH):
        logits = functional_call(model, dict(replaced), (batch.images,)) if replaced else model(batch.images)
    if not isinstance(logits, Tensor):
        got = f"{type(logits).__name__} from {type(model).__name__}"
        raise GradveilError(f"expected a model that returns logits (images, classes) alone, got a {got}")
    return logits, sum(costs, loss_function(model)(logits, batch.labels))


def gradient_norm(gradient: Iterable[Tensor]) -> Tensor:
    """The Euclidean length of all tensors together, a scalar in double precision on the CPU: not every device has it."""
    return torch.stack([tensor.cpu().double().square().sum() for tensor in gradient]).sum().sqrt()


def trainable_parameters(model: nn.Module) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
    """Names and tensors of the parameters whose gradients are shared, in the model's order."""
    named = [(name, parameter) for name, parameter in structure_of(model).parameters.items() if parameter.requires_grad]
    if not named:
        raise GradveilError("the model has no trainable parameters, so nothing of it is shared")
    return tuple(name for name, _ in named), tuple(parameter for _, parameter in named)


@contextmanager
def freezing_statistics(model: nn.Module) -> Iterator[None]:
    """Batch norm in training mode normalises by the batch as always, but does not remember it."""
    tracking = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    for module in tracking:
        # In evaluation mode the flag has no effect as long as there are running statistics.
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True


@contextmanager
def explaining_errors() -> Iterator[None]:
    """What torch says of a batch that a network cannot train on, such as one image before batch norm of vectors, in one line."""
    try:
        yield
    except ValueError as error:
        raise GradveilError(f"the model cannot train on such a batch: {' '.join(str(error).split())[:200]}") from error


@contextmanager
def setting_modes(model: nn.Module) -> Iterator[None]:
    """Inside, modules may be put into training or evaluation mode; afterwards they are in the mode that they were in."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def batch_norm_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """The model in evaluation mode, its batch norm in training mode where asked for; afterwards as it was."""
    with setting_modes(model):
        model.eval()
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.train(training)
        yield


def _is_differentiable(batch: Batch) -> bool:
    return batch.images.requires_grad or batch.labels.requires_grad
