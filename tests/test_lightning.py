import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from gradveil.client import Client
from gradveil.defenses import Defense, parse_defense
from gradveil.defenses.precode import bottlenecks
from gradveil.errors import GradveilError
from gradveil.lightning import DefendedData, DefenseCallback
from gradveil.models.stochastic import collecting_penalties, drawing, normal_source
from gradveil.randomness import derive_seed, generator
from gradveil.transforms import Policy, PolicyDataset
from gradveil.types import Dataset
from lightning_script import COUNT, QUIET, SIZE, Data, Small, check_refused, fit, same

pytestmark = QUIET
POLICY = "3-1-7+43-18-18"


@pytest.fixture
def data(fashion: Dataset) -> Data:
    return Data(fashion.train.images[:COUNT], fashion.train.labels[:COUNT])


def by_hand(
    data: Data, defense: Defense, *, seed: int = 0, epochs: int = 2, accumulate: int = 1, network: Small | None = None
) -> Small:
    """The loop that the callback stands for."""
    module = network or Small()
    optimizer = module.configure_optimizers()
    step = 0
    data.setup("fit")
    for epoch in range(epochs):
        for number, batch in enumerate(data.train_dataloader()):
            with (
                drawing(module, normal_source(generator(seed, "draws", "train", epoch, number))),
                collecting_penalties(module) as costs,
            ):
                loss = sum(costs, F.cross_entropy(module(batch[0]), batch[1]))
            (loss / accumulate).backward()
            if (number + 1) % accumulate:
                continue
            named = dict(module.named_parameters())
            found = {name: one.grad for name, one in named.items() if one.grad is not None}
            for name, gradient in defense.gradients(found, seed=derive_seed(seed, "step", step)).items():
                named[name].grad = gradient
            optimizer.step()
            optimizer.zero_grad()
            step += 1
    return module


@pytest.mark.parametrize("defense", ["none", "prune:0.9", "gaussian:1e-2", "clip:0.1 | laplacian:1e-3"])
def test_the_callback_is_the_loop_by_hand(data: Data, defense: str) -> None:
    module, _ = fit(data, DefenseCallback(defense, seed=3))
    assert same(module, by_hand(data, parse_defense(defense), seed=3))
    plain, _ = fit(data)
    assert same(module, plain) == (defense == "none")


def test_accumulated_gradients_are_defended_once_per_step(data: Data) -> None:
    module, _ = fit(data, DefenseCallback("prune:0.9 | gaussian:1e-3"), accumulate_grad_batches=2)
    assert same(module, by_hand(data, parse_defense("prune:0.9 | gaussian:1e-3"), accumulate=2))


class Turns(Small):
    """Two optimizers by hand: while one steps, the other's gradients wait."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: list[Tensor], number: int) -> None:
        self.manual_backward(F.cross_entropy(self(batch[0]), batch[1]))
        body, head = self.optimizers()
        waiting = self.head.weight.grad.clone()
        body.step()
        assert torch.equal(self.head.weight.grad, waiting)
        head.step()
        assert int((self.head.weight.grad != 0).sum()) == 60
        self.zero_grad()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), lr=0.01) for part in (self.body, self.head)]


def test_only_what_is_stepped_is_defended(data: Data) -> None:
    _, trainer = fit(data, DefenseCallback("prune:0.5"), module=Turns(), epochs=1)
    assert trainer.global_step == 8
    with pytest.raises(GradveilError, match="automatic optimization"):
        fit(data, DefenseCallback("precode"), module=Turns())


def test_precode_comes_with_its_cost(data: Data) -> None:
    defense = "precode:k=4,beta=0.1 | prune:0.5"
    module, trainer = fit(data, DefenseCallback(defense, seed=2))
    assert list(bottlenecks(module)) == ["head.precode"]
    network = Small()
    network.head = parse_defense(defense).network(nn.ModuleDict({"head": network.head}), seed=2).head  # type: ignore[assignment]
    assert same(module, by_hand(data, parse_defense(defense), seed=2, network=network))
    # A validation draws the same whatever was drawn before, and the network is defended once.
    outputs = module.outputs
    trainer.validate(module, datamodule=data, verbose=False)
    assert torch.equal(module.outputs, outputs)
    assert list(bottlenecks(module)) == ["head.precode"]
    with pytest.raises(GradveilError, match="already"):
        fit(data, DefenseCallback("precode:k=8"), module=module)


@pytest.mark.parametrize("defense", [f"{POLICY} | precode:k=4 | gaussian:1e-3", f"{POLICY} | dp-sgd:noise=0.5"])
def test_a_resumed_training_is_the_same_training(data: Data, tmp_path: Path, defense: str) -> None:
    def run(epochs: int, resume: Path | None = None) -> tuple[Small, L.Trainer]:
        return fit(DefendedData(data, defense), DefenseCallback(defense), epochs=epochs, resume=resume)

    whole, _ = run(3)
    run(1)[1].save_checkpoint(tmp_path / "one.ckpt")
    resumed, _ = run(3, tmp_path / "one.ckpt")
    assert same(whole, resumed)
    assert torch.equal(torch.cat(whole.seen[4:]), torch.cat(resumed.seen))


class Hidden(Small):
    """Runs layers that Lightning does not know it by."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [self.head]

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.kept[0](self.body(images / 255))
        return logits


def test_a_bottleneck_that_never_runs_is_noticed(data: Data) -> None:
    with pytest.raises(GradveilError, match="never run"):
        fit(data, DefenseCallback("precode:k=4"), module=Hidden())


class InDict(Small):
    def training_step(self, batch: list[Tensor], number: int) -> dict[str, Tensor]:
        return {"loss": super().training_step(batch, number), "more": batch[1]}


def test_the_loss_may_come_in_a_dict(data: Data) -> None:
    in_dict, _ = fit(data, DefenseCallback("precode:k=4,beta=0.1"), module=InDict())
    assert same(in_dict, fit(data, DefenseCallback("precode:k=4,beta=0.1"))[0])


def transformed(data: Data, epoch: int, *, seed: int = 0) -> Tensor:
    dataset = PolicyDataset(data.dataset, Policy.parse(POLICY), seed)
    dataset.set_epoch(epoch)
    return torch.stack([dataset[index][0] for index in range(COUNT)])  # type: ignore[index]


@pytest.mark.parametrize("settings", [{}, {"num_workers": 1, "persistent_workers": True}, {"num_workers": 1}])
def test_defended_data_gives_the_policys_pixels_anew_every_epoch(data: Data, settings: dict[str, Any]) -> None:
    data.settings = settings
    module, _ = fit(DefendedData(data, POLICY, seed=5), epochs=3)
    epochs = torch.cat(module.seen).split(COUNT)
    for epoch, images in enumerate(epochs):
        assert torch.equal(images, transformed(data, epoch, seed=5))
    assert not torch.equal(epochs[0], epochs[1])
    assert torch.equal(module.validated, data.dataset.tensors[0])
    data.setup("fit")
    assert torch.equal(next(iter(data.train_dataloader()))[0], data.dataset.tensors[0][:SIZE])


def test_two_policies_in_a_chain_are_applied_one_after_the_other(data: Data) -> None:
    defended = DefendedData(data, "3-1-7 | 43-18-18", seed=5)
    defended.setup("fit")
    images = torch.cat([batch[0] for batch in defended.train_dataloader()])
    expected = parse_defense("3-1-7 | 43-18-18").images(data.dataset.tensors[0], seed=5, indices=torch.arange(COUNT))
    assert torch.equal(images, expected)


def test_loaders_keep_their_settings(data: Data) -> None:
    def doubled(items: list[Any]) -> Tensor:
        return torch.stack([item[0] for item in items]).repeat(2, 1, 1, 1)

    def first(worker: int) -> None:
        pass

    chance = torch.Generator().manual_seed(1)
    data.settings = {
        "batch_size": 7,
        "shuffle": True,
        "generator": chance,
        "drop_last": True,
        "collate_fn": doubled,
        "num_workers": 1,
        "prefetch_factor": 3,
        "timeout": 30,
        "worker_init_fn": first,
        "persistent_workers": True,
    }
    defended = DefendedData(data, POLICY)
    defended.setup("fit")
    data.setup("fit")
    theirs, ours = data.train_dataloader(), defended.train_dataloader()
    for name in ("batch_size", "drop_last", "collate_fn", "num_workers", "prefetch_factor", "timeout", "generator"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert (ours.worker_init_fn, ours.persistent_workers) == (first, True)
    assert type(ours.sampler) is type(theirs.sampler)
    assert [len(batch) for batch in ours] == [14] * 5


def test_custom_batches_several_loaders_and_from_datasets(data: Data) -> None:
    order = [[3, 1], [2]]
    loader = DataLoader(data.dataset, batch_sampler=order)
    expected = transformed(data, 0)

    class Several(Data):
        def train_dataloader(self) -> Any:
            return {"one": loader, "more": [DataLoader(self.dataset, batch_size=COUNT)]}

    found = DefendedData(Several(*data.dataset.tensors), POLICY).train_dataloader()
    assert [torch.equal(batch[0], expected[chosen]) for batch, chosen in zip(found["one"], order, strict=True)] == [
        True
    ] * 2
    assert torch.equal(next(iter(found["more"][0]))[0], expected)
    plain = L.LightningDataModule.from_datasets(data.dataset, batch_size=COUNT)
    module, _ = fit(DefendedData(plain, POLICY), epochs=1)
    assert module.seen[0].sort(0).values.equal(expected.sort(0).values)


def test_a_loader_that_lightning_makes_again_is_still_defended(data: Data) -> None:
    data.settings = {"shuffle": True}
    module, _ = fit(DefendedData(data, POLICY), epochs=1, overfit_batches=2)
    assert torch.equal(torch.cat(module.seen), transformed(data, 0)[: 2 * SIZE])


@dataclass(frozen=True)
class Computes(Defense):
    name = "own"

    def client(self, client: Client, *, seed: int) -> Client:
        return client


class Endless(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        yield torch.zeros(1, 28, 28)


def given(loaders: object) -> L.LightningDataModule:
    class Odd(L.LightningDataModule):
        def train_dataloader(self) -> Any:
            return loaders

    return Odd()


REFUSED: dict[str, tuple[Callable[[Data], object], str]] = {
    "own gradient": (lambda data: DefenseCallback(Computes()), "computes the gradient itself"),
    "own gradient, data": (lambda data: DefendedData(data, Computes()), "computes the gradient itself"),
    "unknown": (lambda data: DefenseCallback("nonsense"), "unknown defense"),
    "no images": (lambda data: DefendedData(data, "prune:0.5"), "leaves the images as they are"),
    "no module": (lambda data: DefendedData(data.dataset, POLICY), "from_datasets"),  # type: ignore[arg-type]
    "callback alone": (lambda data: fit(data, DefenseCallback(f"{POLICY} | prune:0.5")), "DefendedData"),
    "other data": (lambda data: fit(DefendedData(data, "0"), DefenseCallback(POLICY)), "DefendedData"),
    "data alone": (lambda data: fit(DefendedData(data, f"{POLICY} | prune:0.5")), "DefenseCallback"),
    "iterable": (lambda data: fit(DefendedData(given(DataLoader(Endless())), POLICY)), "PolicyTransform"),
    "no loader": (lambda data: fit(DefendedData(given(7), POLICY)), "got int"),
    "whole batches": (
        lambda data: fit(DefendedData(given(DataLoader(data.dataset, batch_size=None)), POLICY)),
        "whole batches",
    ),
    "normalised": (
        lambda data: fit(DefendedData(Data(data.dataset.tensors[0] / 255 - 0.5, data.dataset.tensors[1]), POLICY)),
        "before Normalize",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_said(data: Data, case: str) -> None:
    check_refused(data, *REFUSED[case])


def test_the_example_runs() -> None:
    script = Path(__file__).parent.parent / "examples" / "lightning_defended.py"
    assert script.read_text().count("# protected") == 2
    ran = subprocess.run(
        [sys.executable, str(script)],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    found = re.search(r"test accuracy ([\d.]+)%", ran.stdout)
    assert found
    # Chance is 10%; the policy hides half of every image.
    assert float(found[1]) > 25
