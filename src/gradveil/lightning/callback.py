"""The half of a defense that acts on the network and on the gradient of every step."""

import functools
from collections.abc import Mapping

import lightning as L
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.optim import Optimizer

from gradveil.defenses import Defense
from gradveil.defenses.parts import acts, needs_poisson, private_part
from gradveil.errors import GradveilError
from gradveil.lightning.computed import Computed, computing
from gradveil.lightning.halves import MARK, check_data, images_half, usable
from gradveil.models.stochastic import normal, penalties, stochastic
from gradveil.randomness import derive_seed, generator

Output = Tensor | Mapping[str, object] | None


class DefenseCallback(L.Callback):
    """Every optimizer step takes the gradient as the defense leaves it, drawn by (seed, global step).

    The gradient is defended once per step, after it has been accumulated and unscaled, and before Lightning clips it; with
    several processes it is their mean. Parameters have the names of `module.named_parameters()`. A defense that changes
    the network (PRECODE) replaces the module's children by defended copies before optimizers are made, draws by (seed, epoch,
    batch), and adds what its layers cost to the loss that `training_step` returns.

    `dp-sgd` clips the gradient that every image has in the step's own backward pass, so the loss must be a mean over images
    that do not mix, and logs `epsilon` after every epoch. `soteria` runs the network again on what it was given.
    """

    def __init__(self, defense: Defense | str, seed: int = 0) -> None:
        self.defense = usable(defense)
        self.seed = seed
        self._computed: list[Computed] = []

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage == "fit":
            check_data(trainer, self.defense)
            if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
                raise GradveilError(
                    f"a defense needs whole gradients, {type(trainer.strategy).__name__} may split them: "
                    "one device or ddp would do"
                )
            if acts(self.defense, "client"):
                self._check_steps(trainer, pl_module)
        if acts(self.defense, "network"):
            self._defend_network(pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        half = images_half(trainer)
        if needs_poisson(self.defense) and trainer.fit_loop.restarted_mid_epoch:
            raise GradveilError(
                "dp-sgd cannot go on in the middle of an epoch, whose batches would be drawn again: "
                "a checkpoint from the end of one would do"
            )
        for computed in computing(self.defense, pl_module, half.batches if half else None):
            self._computed.append(computed)  # at once: it is watching, and the next one may be refused

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer) -> None:
        if not self._computed and not acts(self.defense, "gradients"):
            return
        if trainer.scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            raise GradveilError(
                f"a fused {type(optimizer).__name__} keeps 16-bit gradients scaled until its step: fused=False would do"
            )
        stepped = {id(one) for group in optimizer.param_groups for one in group["params"]}
        named = {name: one for name, one in pl_module.named_parameters() if id(one) in stepped}
        shared = {name: one.grad for name, one in named.items() if one.grad is not None}
        seed = derive_seed(self.seed, "step", trainer.global_step)
        for computed in self._computed:
            shared = computed.gradients(shared, seed=seed)
        shared = self.defense.gradients(shared, seed=seed)
        for name, parameter in named.items():
            if parameter.grad is not None:
                # In place, because with several processes gradients are views of a common buffer.
                parameter.grad.copy_(shared[name])
            elif name in shared:  # noise for what took no part
                parameter.grad = shared[name]

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

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        epsilon = self.epsilon(trainer)
        if epsilon is not None:
            pl_module.log("epsilon", epsilon, prog_bar=True)

    def epsilon(self, trainer: L.Trainer) -> float | None:
        """What is proven of the steps the trainer has taken, at the defense's delta; None where nothing is.

        It holds for one training, against those who do not know the seed.
        """
        private, half = private_part(self.defense), images_half(trainer)
        if private is None or half is None or half.batches is None:
            return None
        return private.epsilon(half.batches.rate, trainer.global_step)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._stop_watching()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._stop_watching()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        for layer in stochastic(pl_module).values():
            layer.source = None

    def _stop_watching(self) -> None:
        for computed in self._computed:
            computed.close()
        self._computed = []

    def _check_steps(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Refuse steps in which a gradient cannot be computed otherwise."""
        if not isinstance(trainer.strategy, SingleDeviceStrategy):
            raise GradveilError(f"{self.defense} computes the gradient of one process: devices=1 would do")
        if not module.automatic_optimization:
            raise GradveilError(f"{self.defense} computes the gradient, which needs Lightning's automatic optimization")
        if not needs_poisson(self.defense):
            return
        if trainer.accumulate_grad_batches != 1:
            raise GradveilError(
                f"dp-sgd takes a step for every batch it draws, got accumulate_grad_batches={trainer.accumulate_grad_batches}: "
                "a larger batch_size would do"
            )
        if trainer.overfit_batches:  # type: ignore[attr-defined]
            raise GradveilError("dp-sgd draws new batches in every epoch, which overfit_batches forbids")
        if trainer.scaler is not None:
            raise GradveilError("dp-sgd clips gradients, which 16-bit training scales: precision 'bf16-mixed' would do")

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
        if stochastic(module):
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
