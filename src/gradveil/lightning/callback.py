"""The half of a defense that acts on the network and on the gradient of every step."""

import functools
from collections.abc import Mapping

import lightning as L
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.optim import Optimizer

from gradveil.defenses import Defense
from gradveil.defenses.parts import acts
from gradveil.errors import GradveilError
from gradveil.lightning.halves import MARK, check_data, usable
from gradveil.models.stochastic import normal, penalties, stochastic
from gradveil.randomness import derive_seed, generator

Output = Tensor | Mapping[str, object] | None


class DefenseCallback(L.Callback):
    """Every optimizer step takes the gradient as the defense leaves it, drawn by (seed, global step).

    The gradient is defended once per step, after it has been accumulated and unscaled, and before Lightning clips it; with
    several processes it is their mean. Parameters have the names of `module.named_parameters()`. A defense that changes
    the network (PRECODE) replaces the module's children by defended copies before optimizers are made, draws by (seed, epoch,
    batch), and adds what its layers cost to the loss that `training_step` returns.
    """

    def __init__(self, defense: Defense | str, seed: int = 0) -> None:
        self.defense = usable(defense)
        self.seed = seed

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage == "fit":
            check_data(trainer, self.defense)
            if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
                raise GradveilError(
                    f"a defense needs whole gradients, {type(trainer.strategy).__name__} may split them: "
                    "one device or ddp would do"
                )
        if acts(self.defense, "network"):
            self._defend_network(pl_module)

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer) -> None:
        if not acts(self.defense, "gradients"):
            return
        if trainer.scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            raise GradveilError(
                f"a fused {type(optimizer).__name__} keeps 16-bit gradients scaled until its step: fused=False would do"
            )
        stepped = {id(one) for group in optimizer.param_groups for one in group["params"]}
        found = {
            name: one.grad for name, one in pl_module.named_parameters() if one.grad is not None and id(one) in stepped
        }
        shared = self.defense.gradients(found, seed=derive_seed(self.seed, "step", trainer.global_step))
        for name, gradient in found.items():
            # In place, because with several processes gradients are views of a common buffer.
            gradient.copy_(shared[name])

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int
    ) -> None:
        self._draw(pl_module, "train", trainer.current_epoch, batch_idx)

    def on_validation_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._draw(pl_module, "validation", batch_idx, dataloader_idx)

    def on_test_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._draw(pl_module, "test", batch_idx, dataloader_idx)

    def on_predict_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._draw(pl_module, "predict", batch_idx, dataloader_idx)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        for layer in stochastic(pl_module).values():
            layer.source = None

    def _draw(self, module: L.LightningModule, *path: str | int) -> None:
        """Let layers draw from a stream of their own for one batch, so that a training can go on after a kill."""
        layers = stochastic(module)
        if layers:
            source = normal(generator(self.seed, "draws", *path))
            for layer in layers.values():
                layer.source = source

    def _defend_network(self, module: L.LightningModule) -> None:
        before = getattr(module, MARK, None)
        if before == str(self.defense):
            return
        if before is not None:
            raise GradveilError(f"the module has the network of {before} already: a fresh one would do")
        if not module.automatic_optimization:
            raise GradveilError(f"{self.defense} adds to the loss, which needs Lightning's automatic optimization")
        children = nn.Module()
        for name, child in module.named_children():
            children.add_module(name, child)
        defended = self.defense.network(children, seed=self.seed)
        if defended is children:
            return
        for name, child in defended.named_children():
            setattr(module, name, child)
        setattr(module, MARK, str(self.defense))
        self._add_penalties(module)

    def _add_penalties(self, module: L.LightningModule) -> None:
        theirs = module.training_step

        @functools.wraps(theirs)
        def training_step(*args: object, **kwargs: object) -> Output:
            with penalties(module) as costs:
                output: Output = theirs(*args, **kwargs)
            if not costs:
                raise GradveilError(
                    f"what {self.defense} adds to the network was never run: training_step must call the module's own children"
                )
            return _plus(output, sum(costs[1:], costs[0]))

        module.training_step = training_step  # type: ignore[method-assign]


def _plus(output: Output, cost: Tensor) -> Output:
    if output is None:
        return None
    if isinstance(output, Tensor):
        return output + cost
    loss = output["loss"]
    assert isinstance(loss, Tensor)
    return {**output, "loss": loss + cost}
