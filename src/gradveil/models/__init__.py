"""Image classifiers by name.

Every model takes floats in [0, 1] of shape (B, C, H, W) and returns logits (B, classes); normalisation is its first layer.
"""

import importlib
import inspect
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from gradveil.datasets import channel_statistics
from gradveil.errors import GradveilError
from gradveil.io.memory import memory_bytes
from gradveil.models.losses import CROSS_ENTROPY, CrossEntropy, loss_function, with_loss
from gradveil.models.normalizing import Normalize, input_normalization, parse_normalization, with_normalization
from gradveil.models.plain import MLP, ConvNet, LeNet, ShiftInvariantNet
from gradveil.models.resnet import BasicBlock, Bottleneck, ResNet
from gradveil.models.structure import copy_module
from gradveil.naming import unknown
from gradveil.randomness import derive_seed, seeding_torch
from gradveil.types import Dataset

ImageShape = tuple[int, int, int]
# A model by name, or a module of somebody's own.
Model = str | nn.Module
# (image_shape, classes, width=...) -> logits network; `width` is whatever number the name ends in.
Architecture = Callable[..., nn.Module]

# What somebody's own code raises where it was written for other images or arguments.
_MODEL_ERRORS = (RuntimeError, ArithmeticError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
_HOW_TO_NAME = (
    "expected a function that is called as function(image_shape, classes), "
    "or one or a class that takes fewer than two arguments and needs none"
)


def _cifar_resnet(image_shape: ImageShape, classes: int, *, depth: int, width: int) -> ResNet:
    return ResNet(image_shape, classes, block=BasicBlock, depths=[(depth - 2) // 6] * 3, width=16 * width)


# Name -> (architecture, default width). `resnet20-4` is `resnet20` at four times the width; elsewhere the number is the width.
MODELS: dict[str, tuple[Architecture, int]] = {
    "resnet20": (partial(_cifar_resnet, depth=20), 1),
    "resnet32": (partial(_cifar_resnet, depth=32), 1),
    "resnet56": (partial(_cifar_resnet, depth=56), 1),
    "resnet110": (partial(_cifar_resnet, depth=110), 1),
    "resnet18": (partial(ResNet, block=BasicBlock, depths=(2, 2, 2, 2)), 64),
    "resnet152": (partial(ResNet, block=Bottleneck, depths=(3, 8, 36, 3)), 64),
    "convnet": (partial(ConvNet, convolutions=8), 64),
    "convnet9": (partial(ConvNet, convolutions=9), 64),
    "circularnet": (partial(ConvNet, padding="circular"), 64),
    "invariantnet": (ShiftInvariantNet, 64),
    "lenet": (LeNet, 12),
    "mlp": (MLP, 1024),
}


def build(
    name: Model,
    image_shape: ImageShape,
    classes: int,
    *,
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """An untrained model called `name`, e.g. `resnet20-4`, `convnet-16` or your own `package.module:function`.

        build("convnet-16", (3, 32, 32), 10)

    `image_shape` is (C, H, W). `mean` and `std`, one number per channel, are those of the training images in [0, 1]. Your own
    function is called as `function(image_shape, classes)`, or without arguments if it cannot take two. It returns a module that
    takes images in [0, 1]. The same seed gives the same weights. A module in place of a name is copied as it is.

    After an @ the name says what is around the network: `my_nets:Net@normalize=0.5/0.25` normalises images as the loader of its
    training does, `lenet@smoothing=0.1` and `lenet@bce` are trained with another loss.
    """
    if isinstance(name, nn.Module):
        return copy_module(name)
    name, *around = name.split("@")
    network = _build_bare(name, image_shape, classes, seed=seed, mean=mean, std=std)
    for one in around:
        if not one.startswith("normalize="):
            network = with_loss(network, one)
        elif ":" not in name:
            raise GradveilError(f"model {name!r} normalises its images itself, by the dataset's: leave out {one!r}")
        else:
            given = parse_normalization(one.removeprefix("normalize="))
            if len(given.mean) not in (1, image_shape[0]):
                got = f"{len(given.mean)}; the images are {image_shape}"
                raise GradveilError(f"{one!r}: expected {image_shape[0]} means and deviations, got {got}")
            network = with_normalization(network, given.mean, given.std)
    if ":" not in name and classes < 2 and isinstance(loss_function(network), CrossEntropy):
        raise GradveilError(
            f"model {name!r}: expected images of 2 classes or more, got {classes}; the cross entropy of one class has no gradient"
        )
    return network


def _build_bare(
    name: str,
    image_shape: ImageShape,
    classes: int,
    *,
    seed: int,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> nn.Module:
    architecture = _own_architecture(name) if ":" in name else _named_architecture(name)
    with seeding_torch(derive_seed(seed, "weights", name)):
        try:
            if ":" not in name:
                _check_room(architecture, name, image_shape, classes)
            network = architecture(image_shape, classes)
        except _MODEL_ERRORS as error:
            how = f"; {_HOW_TO_NAME}" if ":" in name else ""
            raise GradveilError(f"model {name!r} cannot be built for images {image_shape}: {error}{how}") from error
        if ":" in name:
            _check_own(name, network, image_shape)
            return network
    if min(image_shape[1:]) < 9 and isinstance(network, ConvNet):
        raise GradveilError(
            f"model {name!r} needs images of at least 9x9 pixels, got {image_shape[1]}x{image_shape[2]}"
        )
    normalize = Normalize(mean or [0.5] * image_shape[0], std or [0.25] * image_shape[0])
    return nn.Sequential(OrderedDict(normalize=normalize, net=network))


def _check_own(name: str, network: object, image_shape: ImageShape) -> None:
    """Show a model of somebody's own one black image: it has to take it and to return logits."""
    if not isinstance(network, nn.Module):
        raise GradveilError(f"model {name!r}: expected a torch.nn.Module, got {type(network).__name__}")
    modes = [(module, module.training) for module in network.modules()]
    try:
        with torch.no_grad():
            logits = network.eval()(torch.zeros(1, *image_shape))
    except _MODEL_ERRORS as error:
        raise GradveilError(f"model {name!r} does not take images {image_shape}: {error}") from error
    finally:
        for module, mode in modes:
            module.training = mode
    if not isinstance(logits, Tensor):
        got = type(logits).__name__
        raise GradveilError(
            f"model {name!r}: expected logits (images, classes) as its only output, got a {got}; wrap it"
        )
    if logits.ndim != 2 or len(logits) != 1:
        raise GradveilError(f"model {name!r}: expected logits (1, classes) for one image, got {tuple(logits.shape)}")


def model_name(model: Model) -> str:
    """What a model is called in records: its name, or the class of a module, with what is around it."""
    if isinstance(model, str):
        return model
    loss, inputs = loss_function(model), input_normalization(model)
    around = [f"normalize={inputs}"] if inputs is not None else []
    around += [str(loss)] if loss != CROSS_ENTROPY else []
    return "@".join([type(model).__name__, *around])


def bare_name(name: str) -> str:
    """The network in a model's name, without what is around it: `my_nets:Net` of `my_nets:Net@normalize=0.5/0.25`."""
    return name.partition("@")[0]


def untrained_model(name: Model, dataset: Dataset, *, seed: int = 0, classes: int | None = None) -> nn.Module:
    """A fresh model for the dataset, normalised with the statistics of its training images; `classes` if other than its own."""
    mean, std = channel_statistics(dataset.train.images)
    std = tuple(one or 1.0 for one in std)  # a channel of one value has no deviation to divide by
    outputs = dataset.train.outputs if classes is None else classes
    return build(name, dataset.train.image_shape, outputs, seed=seed, mean=mean, std=std)


def parameter_count(model: nn.Module) -> int:
    """How many numbers the model learns."""
    return sum(parameter.numel() for parameter in model.parameters())


def _named_architecture(name: str) -> Callable[[ImageShape, int], nn.Module]:
    match = re.fullmatch(r"([a-z]+\d*)(?:-(\d{1,5}))?", name)
    if match is None or match[1] not in MODELS:
        raise unknown(name, MODELS, "model", more=", each with an optional -WIDTH, or package.module:function")
    architecture, width = MODELS[match[1]]
    if match[2] is not None:
        width = int(match[2])
    if not 1 <= width <= 8192:
        raise GradveilError(f"model {name!r}: width must be 1 to 8192, got {width}")
    return partial(architecture, width=width)


def _check_room(
    architecture: Callable[[ImageShape, int], nn.Module], name: str, image_shape: ImageShape, classes: int
) -> None:
    """Refuse a model that would take more than half of this machine's memory, before any of it is taken."""
    with torch.device("meta"):
        needed, most = 4 * parameter_count(architecture(image_shape, classes)), memory_bytes() // 2
    if needed > most:
        raise GradveilError(
            f"model {name!r} takes {needed / 2**30:.1f} GiB for images {image_shape} in {classes} classes, expected at most "
            f"{most / 2**30:.1f} GiB, half of this machine's memory"
        )


def _own_architecture(name: str) -> Callable[[ImageShape, int], nn.Module]:
    module_name, _, function_name = name.partition(":")
    try:
        if module_name.startswith("."):
            raise ValueError("a relative name")
        with _importing_from_here():
            module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise GradveilError(
            f"model {name!r}: cannot import {module_name!r} ({error}); expected package.module:function"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise GradveilError(f"model {name!r}: {module_name!r} has no function {function_name!r}")
    checked: Callable[[ImageShape, int], nn.Module] = function
    return checked if _takes_two(function) else lambda image_shape, classes: function()


def _takes_two(function: Callable[..., object]) -> bool:
    """Whether it can be called with two arguments; a class of your own may know its sizes by itself."""
    try:
        inspect.signature(function).bind((1, 28, 28), 10)
    except TypeError:
        return False
    except ValueError:  # written in C, says nothing
        return True
    return True


@contextmanager
def _importing_from_here() -> Iterator[None]:
    # A console script does not have the working directory on its path, yet that is where a user's own model lives.
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
