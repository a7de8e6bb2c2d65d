"""The part of a defense that acts on the network and on the gradient of every step."""

import functools
from collections.abc import Mapping

import lightning as L
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from torch.optim import Optimizer

from gradveil.defenses import Defense
from gradveil.defenses.parts import acts, needs_poisson, private_part
from gradveil.errors import GradveilError
from gradveil.lightning.checks import MARK, check_data, data_defense, usable_defense
from gradveil.lightning.watchers import StepWatcher, start_watchers
from gradveil.models.stochastic import collecting_penalties, normal_source, stochastic_layers
from gradveil.randomness import derive_seed, generator

Output = Tensor | Mapping[str, object] | None


class DefenseCallback(L.Callback):
    """Every optimizer step takes the gradient as the defense leaves it, a function of (seed, global step).

        Trainer(callbacks=[DefenseCallback("prune:0.9")])

    The gradient is defended once per step: after it has been accumulated and unscaled, before Lightning clips it. With several
    processes it is their mean. Parameters have the names of `module.named_parameters()`.

    A defense that changes the network (PRECODE) replaces the module's children by defended copies before optimizers are made.
    Its layers draw by (seed, epoch, batch), and what they cost is added to the loss that `training_step` returns.

    `dp-sgd` clips the gradient of every image in the step's own backward pass. So the loss must be a mean over images that do
    not mix. It logs `epsilon` after every epoch. `soteria` runs the network again on what it was given.
    """

    def __init__(self, defense: Defense | str, seed: int = 0) -> None:
        self.defense = usable_defense(defense)
        self.seed = seed
        self._watchers: list[StepWatcher] = []

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage == "fit":
            check_data(trainer, self.defense)
            if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
                raise GradveilError(f"{type(trainer.strategy).__name__} may split gradients: use one device or ddp")
            if acts(self.defense, "client"):
                self._check_steps(trainer, pl_module)
        if acts(self.defense, "network"):
            self._defend_network(pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        data = data_defense(trainer)
        if needs_poisson(self.defense) and trainer.fit_loop.restarted_mid_epoch:
            raise GradveilError("dp-sgd cannot resume in the middle of an epoch: use a checkpoint of the end of one")
        for watcher in start_watchers(self.defense, pl_module, data.batches if data else None):
            self._watchers.append(watcher)  # at once: it is watching, and the next one may be refused

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer) -> None:
        if not self._watchers and not acts(self.defense, "gradients"):
            return
        if trainer.scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            raise GradveilError(f"16-bit gradients of a fused {type(optimizer).__name__} are scaled: use fused=False")
        stepped = {id(one) for group in optimizer.param_groups for one in group["params"]}
        named = {name: one for name, one in pl_module.named_parameters() if id(one) in stepped}
        shared = {name: one.grad for name, one in named.items() if one.grad is not None}
        seed = derive_seed(self.seed, "step", trainer.global_step)
        for watcher in self._watchers:
            shared = watcher.gradients(shared, seed=seed)
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
        private, data = private_part(self.defense), data_defense(trainer)
        if private is None or data is None or data.batches is None:
            return None
        return private.epsilon(data.batches.rate, trainer.global_step)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._stop_watching()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._stop_watching()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        for layer in stochastic_layers(pl_module).values():
            layer.source = None

    def _stop_watching(self) -> None:
        for watcher in self._watchers:
            watcher.close()
        self._watchers = []

    def _check_steps(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Refuse steps in which a gradient cannot be computed otherwise."""
        if not isinstance(trainer.strategy, SingleDeviceStrategy):
            raise GradveilError(f"{self.defense} computes the gradient of one process: use devices=1")
        if not module.automatic_optimization:
            raise GradveilError(f"{self.defense} computes the gradient, which needs Lightning's automatic optimization")
        if not needs_poisson(self.defense):
            return
        if (batches := trainer.accumulate_grad_batches) != 1:
            raise GradveilError(f"accumulate_grad_batches={batches}: expected 1 for dp-sgd, use a larger batch_size")
        if trainer.overfit_batches:  # type: ignore[attr-defined]
            raise GradveilError("dp-sgd draws new batches in every epoch, which overfit_batches forbids")
        if trainer.scaler is not None:
            raise GradveilError("dp-sgd clips gradients, which 16-bit training scales: use precision 'bf16-mixed'")

    def _draw(self, module: L.LightningModule, *path: str | int) -> None:
        """Let layers draw from a stream of their own for one batch, so that a training can go on after a kill."""
        layers = stochastic_layers(module)
        if layers:
            source = normal_source(generator(self.seed, "draws", *path))
            for layer in layers.values():
                layer.source = source

    def _defend_network(self, module: L.LightningModule) -> None:
        before = getattr(module, MARK, None)
        if before == str(self.defense):
            return
        if before is not None:
            raise GradveilError(f"the module has the network of {before} already: use a fresh one")
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
        if stochastic_layers(module):
            self._add_penalties(module)

    def _add_penalties(self, module: L.LightningModule) -> None:
        theirs = module.training_step

        @functools.wraps(theirs)
        def training_step(*args: object, **kwargs: object) -> Output:
            with collecting_penalties(module) as costs:
                output: Output = theirs(*args, **kwargs)
            if not costs:
                raise GradveilError(f"training_step must call its module's children: {self.defense} was never run")
            return _add_cost(output, sum(costs[1:], costs[0]))

        module.training_step = training_step  # type: ignore[method-assign]


def _add_cost(output: Output, cost: Tensor) -> Output:
    if output is None:
        return None
    if isinstance(output, Tensor):
        return output + cost
    loss = output["loss"]
    assert isinstance(loss, Tensor)
    return {**output, "loss": loss + cost}
