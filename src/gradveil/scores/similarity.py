"""How alike the gradients of many images are to those of others, image by image, without keeping any gradient.

A batch goes through the network once. As the backward pass reaches a layer, each image's gradient of that layer is built from
what went in and what came back, compared, and forgotten: memory is bounded by one layer of one batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.client import share, trainable_parameters
from gradveil.devices import CPU, Device, is_out_of_memory
from gradveil.types import Batch

# For a layer: input and gradient of the output, image by image -> gradients of its parameters, each (B, ...).
LayerGradients = Callable[[nn.Module, Tensor, Tensor], dict[str, Tensor]]


# Larger pieces of memory than these 16 MB are handed back to the system after every use, which takes longer than using them.
NUMBERS_AT_ONCE = 1 << 22
# Gradients in one pass. More would not be faster (they are bound by arithmetic) and would need more memory.
AT_ONCE = 24


@dataclass(frozen=True)
class Products:
    """Inner products between gradients, tensor by tensor.

    For G groups of P images and T parameter tensors, (G, P, T): `dots` with the group's first image, `squares` with itself.
    """

    dots: Tensor
    squares: Tensor

    def cosines(self, *, per_tensor: bool) -> Tensor:
        """(G, P): cosine with the group's first gradient, of the whole or as the mean of the tensors' cosines."""
        if per_tensor:
            return _cosine(self.dots, self.squares).mean(2)
        return _cosine(self.dots.sum(2), self.squares.sum(2))

    def first(self, tensors: int) -> "Products":
        """The same of the first `tensors` parameter tensors alone."""
        return Products(self.dots[..., :tensors], self.squares[..., :tensors])


def _cosine(dots: Tensor, squares: Tensor) -> Tensor:
    # With torch's own bound on a norm: the cosine of nothing with anything is 0.
    norms = squares.sqrt().clamp_min(1e-8)
    return dots / (norms * norms[:, :1])


class Similarity:
    """Compares the gradients of `model`, which must be in eval mode, for single images. Images and labels come on `device`.

    `batched` says whether all gradients of a batch can be had from one pass. It needs layers that are known here, each with
    parameters of its own and used once; otherwise autograd goes image by image: right for any model, and slower.
    """

    def __init__(self, model: nn.Module, device: Device = CPU) -> None:
        self.model, self.device = device.place(model), device
        self.names = trainable_parameters(model)[0]
        self.batched = _knows_all_layers(model)
        self._proven = False

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "model": CPU.place(self.model)}  # it may be on its way to another process

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self.model = self.device.place(self.model)

    def __call__(self, images: Tensor, labels: Tensor) -> Products:
        """Products of `images` (G, P, C, H, W), each with the first of its group; `labels` (G,)."""
        groups, size = images.shape[:2]
        flat, repeated = images.flatten(0, 1), labels.repeat_interleave(size)
        if self.batched and not self._proven:
            # A model may use its parameters in ways its layers do not show; autograd has the last word.
            self.batched, self._proven = self._agrees(flat[:1], repeated[:1]), True
        found = (self._in_one_pass if self.batched else self._one_by_one)(flat, repeated, groups)
        dots, squares = found.unbind(3)
        return Products(dots, squares)

    def with_others(self, images: Tensor, others: Tensor, labels: Tensor) -> Products:
        """Products of each of `images` (N, C, H, W) with itself and with its own `others` (N, P, C, H, W): (N, 1 + P, T)."""
        groups = torch.split(torch.arange(len(images)), max(1, AT_ONCE // (1 + others.shape[1])))
        found = [self(torch.cat([images[some, None], others[some]], 1), labels[some]) for some in groups]
        return Products(torch.cat([one.dots for one in found]), torch.cat([one.squares for one in found]))

    def _agrees(self, images: Tensor, labels: Tensor) -> bool:
        expected = self._one_by_one(images, labels, 1)
        try:
            return torch.allclose(self._in_one_pass(images, labels, 1), expected, rtol=1e-3, atol=1e-20, equal_nan=True)
        except (KeyError, RuntimeError, TypeError, IndexError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            return False  # a layer that was not called, or called in its own way

    def _in_one_pass(self, images: Tensor, labels: Tensor, groups: int) -> Tensor:
        found: dict[str, list[Tensor]] = {name: [] for name in self.names}

        def compare(name: str, gradients: Tensor) -> None:
            each = gradients.reshape(-1, size, gradients[0].numel())
            dots = torch.bmm(each, each[:, 0, :, None])[..., 0]
            found[name].append(torch.stack([dots, each.square().sum(2)], 2))

        size = len(images) // groups
        with _listening(self.model, size, compare), torch.enable_grad():
            start = images.clone().requires_grad_()
            # Only what comes back to the layers is wanted. The sum keeps images apart: each has the gradient of its own loss.
            torch.autograd.grad(F.cross_entropy(self.model(start), labels, reduction="sum"), start)
        return torch.stack([torch.cat(found[name]) for name in self.names], 2)

    def _one_by_one(self, images: Tensor, labels: Tensor, groups: int) -> Tensor:
        rows = []
        for number in range(len(images)):
            one = slice(number, number + 1)
            gradients = share(self.model, Batch(images[one], labels[one]))
            if number % (len(images) // groups) == 0:
                first = gradients
            rows.append(
                torch.stack([torch.stack([(g * first[name]).sum(), g.square().sum()]) for name, g in gradients.items()])
            )
        return torch.stack(rows).view(groups, -1, len(self.names), 2)


def _linear(layer: nn.Module, inputs: Tensor, back: Tensor) -> dict[str, Tensor]:
    inputs, back = inputs.reshape(len(inputs), -1, inputs.shape[-1]), back.reshape(len(back), -1, back.shape[-1])
    return {"weight": torch.bmm(back.transpose(1, 2), inputs), "bias": back.sum(1)}


def _conv2d(layer: nn.Module, inputs: Tensor, back: Tensor) -> dict[str, Tensor]:
    assert isinstance(layer, nn.Conv2d)
    assert not isinstance(layer.padding, str)
    (tall, wide), (down, right) = layer.kernel_size, layer.stride
    (above, left) = layer.padding
    # Channels last: the patches of a row of the kernel are then contiguous, which makes copying them twice as fast.
    padded = F.pad(inputs.permute(0, 2, 3, 1), (0, 0, left, left, above, above)).contiguous()
    count, height, width, channels = padded.shape
    rows, columns = back.shape[2:]
    line = width * channels
    patches = padded.as_strided(
        (count, rows, columns, tall, wide * channels), (height * line, down * line, right * channels, line, 1)
    )
    weight = torch.bmm(back.flatten(2), patches.reshape(count, rows * columns, -1))
    # Kernel rows, columns, channels: another order of the same numbers, which no inner product notices.
    return {"weight": weight, "bias": back.sum((2, 3))}


def _batch_norm(layer: nn.Module, inputs: Tensor, back: Tensor) -> dict[str, Tensor]:
    assert isinstance(layer, nn.BatchNorm2d)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    scale = (layer.running_var + layer.eps).rsqrt()
    bias = back.sum((2, 3))
    # sum(back * (inputs - mean) * scale), without an intermediate of the inputs' size more than needed
    weight = ((back * inputs).sum((2, 3)) - bias * layer.running_mean) * scale
    return {"weight": weight, "bias": bias}


def _group_norm(layer: nn.Module, inputs: Tensor, back: Tensor) -> dict[str, Tensor]:
    assert isinstance(layer, nn.GroupNorm)
    normal = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
    return {"weight": (back * normal).flatten(2).sum(2), "bias": back.flatten(2).sum(2)}


LAYERS: dict[type[nn.Module], LayerGradients] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.BatchNorm2d: _batch_norm,
    nn.GroupNorm: _group_norm,
}


@contextmanager
def _listening(model: nn.Module, size: int, compare: Callable[[str, Tensor], None]) -> Iterator[None]:
    handles = []
    for path, layer in model.named_modules():
        own = {name for name, parameter in layer.named_parameters(recurse=False) if parameter.requires_grad}
        if own:
            handles.append(layer.register_forward_hook(_comparing_hook(path, own, size, compare)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _comparing_hook(path: str, own: set[str], size: int, compare: Callable[[str, Tensor], None]) -> Callable[..., None]:
    def forward_hook(layer: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        inputs = arguments[0].detach()

        def backward_hook(back: Tensor) -> None:
            pieces = size * _groups_at_once(layer, size, back)
            with torch.no_grad():
                for some, returned in zip(torch.split(inputs, pieces), torch.split(back, pieces), strict=True):
                    for name, gradients in LAYERS[type(layer)](layer, some, returned).items():
                        if name in own:
                            compare(f"{path}.{name}" if path else name, gradients)

        output.register_hook(backward_hook)  # type: ignore[no-untyped-call]

    return forward_hook


def _groups_at_once(layer: nn.Module, size: int, back: Tensor) -> int:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    patches = back[0].numel() // len(weight) * weight[0].numel()  # what a convolution copies for one image
    return max(1, NUMBERS_AT_ONCE // (size * max(patches, weight.numel())))


def _knows_all_layers(model: nn.Module) -> bool:
    owners = [layer for layer in model.modules() if any(p.requires_grad for p in layer.parameters(recurse=False))]
    owned = [parameter for layer in owners for parameter in layer.parameters(recurse=False) if parameter.requires_grad]
    return len(set(map(id, owned))) == len(owned) and all(map(_knows_layer, owners))


def _knows_layer(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        plain = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
        return type(layer) in LAYERS and plain and not isinstance(layer.padding, str)
    if isinstance(layer, nn.BatchNorm2d):
        return type(layer) in LAYERS and not layer.training and layer.running_mean is not None
    return type(layer) in LAYERS
