"""Updates may come from anyone: they are checked against the model before they count."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gradveil.client import trainable_parameters
from gradveil.errors import GradveilError
from gradveil.federated.participant import Update

# The largest number of images that a participant without a fixed batch may claim.
MOST_IMAGES = 10_000_000


class RefusedUpdate(GradveilError):
    """An update that does not count; the training goes on without it."""


def check_update(update: Update, network: nn.Module, *, most: int) -> None:
    """Refuse an update that does not fit the network, is no number somewhere, or claims more than `most` images."""
    check_images(update.images, most=most)
    names, parameters = trainable_parameters(network)
    check_tensors(update.gradients, dict(zip(names, parameters, strict=True)), "gradients")
    check_tensors(update.buffers, dict(network.named_buffers()), "buffers")


def check_images(images: object, *, most: int) -> None:
    """Refuse a number of images that an update cannot count for."""
    if type(images) is not int or not 1 <= images <= most:
        raise RefusedUpdate(f"an update counts for 1 to {most} images, got {images!r}")


def check_tensors(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], part: str) -> None:
    """Refuse tensors unless they are finite and have the names, shapes and types of `expected`."""
    if set(found) != set(expected):
        raise RefusedUpdate(f"the {part} of an update do not have the names that the model has")
    for name, like in expected.items():
        if found[name].shape != like.shape or found[name].dtype != like.dtype:
            raise RefusedUpdate(
                f"{part}: {name} is {found[name].dtype} {tuple(found[name].shape)}, "
                f"the model has {like.dtype} {tuple(like.shape)}"
            )
    if not are_finite(found):
        odd = next(name for name, one in found.items() if not bool(torch.isfinite(one).all()))
        raise RefusedUpdate(f"{part}: {odd} is not finite")


def are_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all are numbers."""
    floats = [one for one in tensors.values() if one.is_floating_point() and one.numel()]
    # The largest of each, all in one call: one by one, the calls take a noticeable part of a small network's round.
    return not floats or bool(torch.stack(torch._foreach_norm(floats, torch.inf)).isfinite().all())
