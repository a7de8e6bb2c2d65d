"""dp-sgd and soteria around somebody's own training step, against the loop that they stand for."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from opacus.accountants import RDPAccountant
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, WeightedRandomSampler

from gradveil.client import gradient
from gradveil.defenses import Defense, DpSgd, Soteria, parse_defense, with_expected_batch
from gradveil.errors import GradveilError
from gradveil.lightning import DefendedData, DefenseCallback
from gradveil.randomness import derive_seed
from gradveil.training.batches import PoissonBatches
from gradveil.types import Batch, Dataset, Gradients
from lightning_script import COUNT, QUIET, SIZE, Data, Small, check_refused, fit, same

pytestmark = QUIET


@pytest.fixture
def data(fashion: Dataset) -> Data:
    return Data(fashion.train.images[:COUNT], fashion.train.labels[:COUNT])


def by_hand(
    module: Small, batches: list[Batch], defense: Defense, *, seed: int = 0, mask: Soteria | None = None
) -> Small:
    """One step per batch, each with what the defense shares; a mask is that of the statistics after the step's own pass."""
    optimizer = module.train().configure_optimizers()
    named = dict(module.named_parameters())
    for step, batch in enumerate(batches):

        def masked(model: nn.Module, batch: Batch) -> Gradients:
            found = gradient(model, batch)
            for layer in mask.layers(model) if mask else ():
                found[f"{layer}.weight"] *= mask.mask(model, batch.images.float(), layer)
            return found

        client = masked if mask else gradient
        shared = defense.share(client, module, batch, seed=derive_seed(seed, "step", step))
        for name, value in shared.items():
            named[name].grad = value
        optimizer.step()
    return module


def drawn(data: Data, size: int, *, seed: int, epochs: int) -> list[Batch]:
    images, labels = data.dataset.tensors
    batches = PoissonBatches(len(images), size, seed)
    indices = [batches.indices(epoch, number) for epoch in range(epochs) for number in range(len(batches))]
    return [Batch(images[chosen], labels[chosen]) for chosen in indices]


def in_order(data: Data, size: int, *, epochs: int) -> list[Batch]:
    images, labels = data.dataset.tensors
    return [Batch(*pair) for pair in zip(images.split(size), labels.split(size), strict=True)] * epochs


@pytest.mark.parametrize("defense", ["dp-sgd:noise=0.5,norm=0.1", "dp-sgd:norm=0.3 | prune:0.5", "train-only:dp-sgd"])
@pytest.mark.parametrize("workers", [0, 1])
def test_dp_sgd_is_the_loop_by_hand(data: Data, defense: str, workers: int) -> None:
    data.settings = {"shuffle": True, "num_workers": workers}
    callback = DefenseCallback(defense, seed=3)
    module, trainer = fit(DefendedData(data, defense, seed=5), callback)
    batches = drawn(data, SIZE, seed=5, epochs=2)
    assert [len(seen) for seen in module.seen] == [len(batch.labels) for batch in batches]
    assert len({len(seen) for seen in module.seen}) > 2
    expected = by_hand(Small(), batches, with_expected_batch(parse_defense(defense), SIZE), seed=3)
    assert same(module, expected)
    assert (callback.epsilon(trainer) is None) == defense.startswith("train-only")


def test_an_empty_batch_is_noise(fashion: Dataset) -> None:
    data = Data(fashion.train.images[:4], fashion.train.labels[:4], batch_size=1)
    module, _ = fit(DefendedData(data, "dp-sgd"), DefenseCallback("dp-sgd"), epochs=3)
    batches = drawn(data, 1, seed=0, epochs=3)
    assert 0 in [len(batch.labels) for batch in batches]
    assert same(module, by_hand(Small(), batches, DpSgd().with_expected_batch(1)))


def test_epsilon_is_opacus_own_and_is_logged(data: Data) -> None:
    callback = DefenseCallback("dp-sgd:noise=0.8")
    _, trainer = fit(DefendedData(data, "dp-sgd:noise=0.8"), callback, epochs=3)
    accountant = RDPAccountant()
    for _ in range(12):
        accountant.step(noise_multiplier=0.8, sample_rate=SIZE / COUNT)
    assert callback.epsilon(trainer) == pytest.approx(accountant.get_epsilon(delta=1e-5))
    assert float(trainer.callback_metrics["epsilon"]) == pytest.approx(accountant.get_epsilon(delta=1e-5))


def test_a_checkpoint_from_the_middle_of_an_epoch_is_refused(data: Data, tmp_path: Path) -> None:
    class Saves(L.Callback):
        def on_train_batch_end(
            self, trainer: L.Trainer, module: object, outputs: object, batch: object, at: int
        ) -> None:
            if at == 1:
                trainer.save_checkpoint(tmp_path / "half.ckpt")

    private(data, callbacks=[Saves()], epochs=1)
    with pytest.raises(GradveilError, match="middle of an epoch"):
        private(data, epochs=3, resume=tmp_path / "half.ckpt")


class Normed(Small):
    """With batch norm, in one child."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Conv2d(1, 4, 5, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
            self.head = nn.Linear(256, 10)


def test_batch_norm_is_refused_or_replaced(data: Data) -> None:
    with pytest.raises(GradveilError, match="batch_norm=group"):
        fit(DefendedData(data, "dp-sgd"), DefenseCallback("dp-sgd"), module=Normed())
    defense = "dp-sgd:batch_norm=group"
    module, _ = fit(DefendedData(data, defense), DefenseCallback(defense), module=Normed())
    grouped = Normed()
    grouped.body = parse_defense(defense).network(grouped.body, seed=0)  # type: ignore[assignment]
    assert isinstance(module.body[1], nn.GroupNorm)
    expected = by_hand(grouped, drawn(data, SIZE, seed=0, epochs=2), with_expected_batch(parse_defense(defense), SIZE))
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value)


class InOne(Small):
    """The network is one child, which training_step calls."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(self.body, self.head)
        del self.body, self.head

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        return F.cross_entropy(self.net(batch[0] / 255), batch[1])

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images / 255)
        return logits


@pytest.mark.parametrize("kind", [Small, InOne, Normed])
@pytest.mark.parametrize("rest", ["none", "gaussian:1e-3"])
def test_soteria_is_the_loop_by_hand(data: Data, kind: type[Small], rest: str) -> None:
    module, _ = fit(data, DefenseCallback(f"soteria:0.4 | {rest}", seed=2), module=kind())
    batches = in_order(data, SIZE, epochs=2)
    expected = by_hand(kind(), batches, parse_defense(rest), seed=2, mask=Soteria(0.4))
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value)
    # Another mask would be seen.
    other, _ = fit(data, DefenseCallback("soteria:0.1"), module=kind())
    assert not same(module, other)


def test_accumulated_batches_have_one_mask(data: Data) -> None:
    module, _ = fit(data, DefenseCallback("soteria:0.4"), accumulate_grad_batches=2)
    batches = in_order(data, 2 * SIZE, epochs=2)
    expected = by_hand(Small(), batches, parse_defense("none"), mask=Soteria(0.4))
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value)


def hung_on(module: nn.Module) -> list[list[list[str]]]:
    """The names of all that hangs on the module's children and on its parameters."""
    return [[sorted(vars(one)) for one in ones] for ones in (module.children(), module.parameters())]


class Fails(Small):
    def on_train_batch_end(self, outputs: object, batch: object, batch_idx: int) -> None:
        raise RuntimeError("somebody's own")


@pytest.mark.parametrize("defense", ["dp-sgd", "soteria:0.4"])
def test_the_module_is_left_as_it_was(data: Data, defense: str) -> None:
    defended = DefendedData(data, defense) if defense == "dp-sgd" else data
    before = hung_on(Small())
    module, _ = fit(defended, DefenseCallback(defense))
    assert hung_on(module) == before
    module = Fails()
    with pytest.raises(RuntimeError, match="own"):
        fit(defended, DefenseCallback(defense), module=module)
    assert hung_on(module) == before
    assert not any(one._forward_hooks or one._forward_pre_hooks or one._backward_hooks for one in module.modules())


class TwoViews(Small):
    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        return F.cross_entropy(self(batch[0].repeat(2, 1, 1, 1)), batch[1].repeat(2))


class OwnParameter(Small):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


class Asleep(Small):
    def on_train_epoch_start(self) -> None:
        self.body.eval()


class Around(Small):
    """Calls the layer itself, and no module that holds it."""

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        return F.cross_entropy(self.head(self.body(batch[0] / 255)), batch[1])


class ByHand(Small):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


def private(data: L.LightningDataModule, callbacks: Sequence[L.Callback] = (), **settings: Any) -> object:
    return fit(DefendedData(data, "dp-sgd"), DefenseCallback("dp-sgd"), *callbacks, **settings)


def several(data: Data) -> L.LightningDataModule:
    class Several(Data):
        def train_dataloader(self) -> Any:
            return [DataLoader(self.dataset), DataLoader(self.dataset)]

    return Several(*data.dataset.tensors)


def weighted(data: Data) -> Data:
    data.settings = {"sampler": WeightedRandomSampler([1.0] * COUNT, COUNT)}
    return data


def several_processes() -> None:
    trainer = L.Trainer(strategy="ddp", devices=1, accelerator="cpu", logger=False, enable_checkpointing=False)
    DefenseCallback("soteria:0.4").setup(trainer, Small(), "fit")


REFUSED: dict[str, tuple[Callable[[Data], object], str]] = {
    "no draws": (lambda data: fit(data, DefenseCallback("dp-sgd")), "DefendedData"),
    "other draws": (
        lambda data: fit(DefendedData(data, "dp-sgd:noise=2"), DefenseCallback("dp-sgd")),
        "DefendedData",
    ),
    "draws alone": (lambda data: fit(DefendedData(data, "dp-sgd")), "DefenseCallback"),
    "both": (lambda data: DefenseCallback("dp-sgd | soteria:0.4"), "voids its proof"),
    "twice": (lambda data: DefenseCallback("dp-sgd | dp-sgd"), "no other defense"),
    "accumulated": (lambda data: private(data, accumulate_grad_batches=2), "accumulate_grad_batches=2"),
    "overfit": (lambda data: private(data, overfit_batches=2), "overfit_batches"),
    "several loaders": (lambda data: private(several(data)), "got list"),
    "weighted": (lambda data: private(weighted(data)), "WeightedRandomSampler"),
    "two views": (lambda data: private(data, module=TwoViews()), "expected one gradient"),
    "own parameter": (lambda data: private(data, module=OwnParameter()), "'scale' is the module's own"),
    "asleep": (lambda data: private(data, module=Asleep()), "training mode"),
    "steps by hand": (lambda data: private(data, module=ByHand()), "automatic optimization"),
    "several processes": (lambda data: several_processes(), "devices=1"),
    "around": (lambda data: fit(data, DefenseCallback("soteria:0.4"), module=Around()), "must call the module"),
    "no layer": (lambda data: fit(data, DefenseCallback("soteria:ratio=0.4,at=haed")), "head"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_said(data: Data, case: str) -> None:
    check_refused(data, *REFUSED[case])
