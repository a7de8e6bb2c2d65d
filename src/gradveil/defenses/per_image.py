"""The gradient of every image of a batch on its own, by Opacus."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradveil.client import loss_of, setting_modes, trainable_parameters
from gradveil.errors import GradveilError
from gradveil.types import Batch

# A warning of torch's about Opacus' hooks.
OPACUS_HOOKS = "Full backward hook is firing"
# What Opacus leaves on modules.
_OPACUS_ATTRIBUTES = ("activations", "max_batch_len")


def per_image(model: nn.Module, batch: Batch) -> list[Tensor]:
    """The gradient of every image, (B, ...) per trainable parameter."""
    parameters = trainable_parameters(model)[1]
    with _layers_in_training_mode(model), recording_per_image(model):
        with ignoring_warnings():
            torch.autograd.grad(loss_of(model, batch), parameters, allow_unused=True)
        return fill_zeros(take_per_image(model), parameters, len(batch.images))


@contextmanager
def recording_per_image(model: nn.Module) -> Iterator[None]:
    """Meanwhile a backward pass of a mean over images leaves every image's gradient for `take_per_image`.

    Of layers in training mode, that is: Opacus looks at no others.
    """
    refuse_batch_norm(model)
    from opacus.grad_sample import GradSampleHooks

    modules = [(module, set(vars(module)), module._is_full_backward_hook) for module in model.modules()]
    try:
        hooks = GradSampleHooks(model)
    except NotImplementedError as error:
        for parameter in trainable_parameters(model)[1]:
            for name in ("grad_sample", "_forward_counter"):
                vars(parameter).pop(name, None)
        raise GradveilError(f"Opacus cannot tell images apart in this model: {error}") from error
    try:
        yield
    finally:
        hooks.cleanup()
        for module, attributes, full in modules:
            if not module._backward_hooks:
                module._is_full_backward_hook = full
            for name in set(_OPACUS_ATTRIBUTES) & (set(vars(module)) - attributes):
                delattr(module, name)


def take_per_image(model: nn.Module) -> list[Tensor | None]:
    """What the last backward pass left for every trainable parameter, once; None where a parameter took no part in it."""
    parameters = trainable_parameters(model)[1]
    found = [parameter.grad_sample for parameter in parameters]  # type: ignore[attr-defined]
    for parameter in parameters:
        parameter.grad_sample = None  # type: ignore[attr-defined]
    if any(isinstance(one, list) for one in found):
        raise GradveilError("dp-sgd clips every image once per step: expected one backward pass, got several")
    return found


def fill_zeros(found: Sequence[Tensor | None], parameters: Sequence[Tensor], images: int) -> list[Tensor]:
    """The gradients of the first so many images; zeros for parameters that took no part."""
    pairs = zip(parameters, found, strict=True)
    return [one.new_zeros((images, *one.shape)) if own is None else own[:images] for one, own in pairs]


def refuse_batch_norm(model: nn.Module) -> None:
    """No gradient is one image's own where batch norm mixes them."""
    if has_batch_norm(model):
        raise GradveilError("dp-sgd cannot have batch norm, which mixes images: use dp-sgd:batch_norm=group")


def has_batch_norm(model: nn.Module) -> bool:
    """Whether the model has batch norm of any kind."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


@contextmanager
def ignoring_warnings() -> Iterator[None]:
    """Warnings about what is meant to be.

    Opacus warns where an order outside of its list would give a smaller epsilon (the one it gives holds), and its hooks make
    torch warn of images that ask for no gradient.
    """
    with warnings.catch_warnings():
        for message in ("Optimal order is the", OPACUS_HOOKS):
            warnings.filterwarnings("ignore", message=message)
        yield


@contextmanager
def _layers_in_training_mode(model: nn.Module) -> Iterator[None]:
    """Of the layers that hold parameters themselves none behaves otherwise then, batch norm apart, which is refused."""
    with setting_modes(model):
        for module in model.modules():
            if any(parameter.requires_grad for parameter in module.parameters(recurse=False)):
                module.training = True
        yield
