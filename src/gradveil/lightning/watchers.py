"""Defenses that compute the gradient themselves, around your own training step."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import lightning as L
import torch
from torch import Tensor, nn

from gradveil.client import trainable_parameters
from gradveil.defenses import Defense, DpSgd
from gradveil.defenses.dp_sgd import PrivateGradient, clip_and_sum
from gradveil.defenses.parts import parts
from gradveil.defenses.per_image import OPACUS_HOOKS, fill_zeros, recording_per_image, take_per_image
from gradveil.defenses.soteria import Soteria
from gradveil.errors import GradveilError
from gradveil.training.batches import PoissonBatches
from gradveil.types import Gradients


class StepWatcher(ABC):
    """Watches every step of `module` from `__init__` to `close`, and gives what the step shares instead of the plain gradient."""

    @abstractmethod
    def gradients(self, found: Gradients, *, seed: int) -> Gradients:
        """What is shared instead of `found`, the gradient of the step that was watched."""

    @abstractmethod
    def close(self) -> None:
        """Leave the module as it was."""


class DpSgdWatcher(StepWatcher):
    """DP-SGD: Opacus' hooks note every image's gradient in the backward pass that the training makes anyway."""

    def __init__(self, defense: DpSgd, module: L.LightningModule, batches: PoissonBatches) -> None:
        own = [name for name, one in module.named_parameters(recurse=False) if one.requires_grad]
        if own:
            raise GradveilError(f"dp-sgd looks at layers, {own[0]!r} is the module's own: put it into a child")
        self.defense, self.module, self.batches = defense.with_expected_batch(batches.batch_size), module, batches
        self._watching = ExitStack()
        self._watching.enter_context(recording_per_image(module))
        for layer in module.modules():
            if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
                self._watching.callback(layer.register_forward_pre_hook(_refuse_evaluation_mode).remove)
        # From here on, because the backward pass is Lightning's: the images ask for no gradient, as they should.
        warnings.filterwarnings("ignore", message=OPACUS_HOOKS)

    def gradients(self, found: Gradients, *, seed: int) -> Gradients:
        names, parameters = trainable_parameters(self.module)
        each = take_per_image(self.module)
        trainer = self.module.trainer
        images = len(self.batches.indices(trainer.current_epoch, trainer.fit_loop.batch_idx))
        for name, one in zip(names, each, strict=True):
            if one is None and name in found:
                raise GradveilError(f"dp-sgd saw no image's own gradient of {name}: its layer must be called itself")
            if one is not None and len(one) != max(1, images):
                raise GradveilError(f"dp-sgd: expected one gradient of {name} per image, got {len(one)} for {images}")
        # Instead of no image the step was given one, which does not count.
        sums = clip_and_sum(fill_zeros(each, parameters, images), self.defense.norm)
        return PrivateGradient(self.defense, seed).release(dict(zip(names, sums, strict=True)), images)

    def close(self) -> None:
        self._watching.close()


class SoteriaWatcher(StepWatcher):
    """Soteria: what the network was given is kept, and run again to see which features give most away.

    Again, that is after the step's own pass, which batch norm's statistics have seen; slopes are those of what the network was
    given, be it pixels or pixels normalised.
    """

    def __init__(self, defense: Soteria, module: L.LightningModule) -> None:
        self.defense, self.module = defense, module
        self.layers = defense.layers(module)
        self._given: dict[str, list[Tensor]] = {}
        self._running_again = False
        names = sorted({name for layer in self.layers for name in _enclosing_modules(layer)})
        around = {name: module.get_submodule(name) for name in names}
        self._hooks = [one.register_forward_pre_hook(self._input_hook(name)) for name, one in around.items()]

    def gradients(self, found: Gradients, *, seed: int) -> Gradients:
        self._running_again = True
        try:
            masks = {f"{layer}.weight": self._mask(layer) for layer in self.layers if f"{layer}.weight" in found}
        finally:
            self._running_again = False
            self._given = {}
        return {name: value * masks[name] if name in masks else value for name, value in found.items()}

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _mask(self, layer: str) -> Tensor:
        for name in _enclosing_modules(layer):
            if name in self._given:
                inside = layer[len(name) + 1 :] if name else layer
                return self.defense.mask(self.module.get_submodule(name), torch.cat(self._given[name]), inside)
        raise GradveilError(f"soteria: training_step must call the module or a child that holds {layer!r}")

    def _input_hook(self, name: str) -> Callable[[nn.Module, tuple[object, ...]], None]:
        def keep(module: nn.Module, inputs: tuple[object, ...]) -> None:
            if self._running_again or not module.training or not torch.is_grad_enabled():
                return
            if len(inputs) != 1 or not isinstance(inputs[0], Tensor):
                raise GradveilError(f"soteria needs a network that takes images alone, {name or 'the module'} does not")
            images = inputs[0].detach()
            self._given.setdefault(name, []).append(images if images.is_floating_point() else images.float())

        return keep


def _refuse_evaluation_mode(layer: nn.Module, inputs: object) -> None:
    if torch.is_grad_enabled() and not layer.training:
        raise GradveilError(f"dp-sgd needs training mode: freeze {type(layer).__name__} by requires_grad_(False)")


def _enclosing_modules(layer: str) -> list[str]:
    """The names of the modules that hold a layer, from the outermost on."""
    words = layer.split(".")
    return [".".join(words[:count]) for count in range(len(words))]


def start_watchers(
    defense: Defense, module: L.LightningModule, batches: PoissonBatches | None
) -> Iterator[StepWatcher]:
    """A watcher for each part that computes the gradient."""
    for part in parts(defense):
        if isinstance(part, DpSgd):
            assert batches is not None
            yield DpSgdWatcher(part, module, batches)
        elif isinstance(part, Soteria):
            yield SoteriaWatcher(part, module)
