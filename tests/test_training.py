import csv
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F
from typer.testing import CliRunner

from commands import start_command
from gradveil.cli import app
from gradveil.cli.options import NetworkOptions
from gradveil.client import Client, gradient
from gradveil.datasets import load
from gradveil.defenses import Defense, PoissonSampled, parse_defense
from gradveil.defenses.precode import bottlenecks
from gradveil.devices import CPU
from gradveil.errors import GradveilError
from gradveil.models import untrained_model
from gradveil.models.stochastic import drawing, normal_source
from gradveil.models.weights import ModelCard, save_weights
from gradveil.progress import Advance, Progress, Unit, silent
from gradveil.randomness import derive_seed, generator
from gradveil.training import Recipe, train
from gradveil.training.batches import (
    AugmentedImages,
    EpochIndices,
    PoissonBatches,
    ShuffledBatches,
    crop_and_flip,
    training_loader,
)
from gradveil.training.early import train_steps
from gradveil.training.networks import load_model
from gradveil.transforms import Policy, PolicyFile, Provenance, save_policy
from gradveil.types import Batch, Dataset, Gradients, ImageSet, to_unit

RECIPE = Recipe(epochs=3, batch_size=32, lr=0.05)


@pytest.fixture(scope="module")
def few() -> Dataset:
    whole = load("fashion-mnist-tenth[:4%]")
    return Dataset("few", whole.train, whole.test.take(range(100)))


def test_crop_and_flip_equals_a_slow_loop(fashion: Dataset) -> None:
    images, indices = fashion.train.images[:40], torch.arange(40) * 7
    result = crop_and_flip(images, indices, seed=1, epoch=2)
    found = set()
    for image, cropped in zip(images, result, strict=True):
        padded = torch.zeros(1, 36, 36, dtype=torch.uint8)
        padded[:, 4:32, 4:32] = image
        options = {
            (down, right, flip): window.flip(2) if flip else window
            for down in range(9)
            for right in range(9)
            for flip in (False, True)
            if (window := padded[:, down : down + 28, right : right + 28]) is not None
        }
        matches = [option for option, window in options.items() if torch.equal(window, cropped)]
        assert matches
        found.add(matches[0])
    assert len(found) > 20


def test_batches_do_not_depend_on_workers_and_cover_every_image_once(few: Dataset) -> None:
    defense = parse_defense("3-1-7+43-18-18")
    passes = []
    for workers in (0, 2):
        loader = training_loader(few.train, batch_size=50, seed=3, defense=defense, workers=workers)
        loader.sampler.set_epoch(4)  # type: ignore[union-attr]
        passes.append(list(loader))
    assert [len(labels) for _, labels in passes[0]] == [50, 50, 50, 50, 40]
    for (images, labels), (others, other_labels) in zip(*passes, strict=True):
        assert torch.equal(images, others)
        assert torch.equal(labels, other_labels)
    assert torch.cat([labels for _, labels in passes[0]]).bincount().tolist() == [24] * 10


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60))
def test_augmentation_of_an_image_does_not_depend_on_its_batch(split: int) -> None:
    images = torch.randint(0, 256, (61, 3, 12, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    indices = torch.arange(61)
    whole = crop_and_flip(images, indices, 0, 0)
    parts = [crop_and_flip(images[part], indices[part], 0, 0) for part in (slice(split), slice(split, None))]
    assert torch.equal(whole, torch.cat(parts))


def test_training_learns_and_keeps_its_history(few: Dataset, tmp_path: Path) -> None:
    trained = train(few, "convnet-4", tmp_path, recipe=RECIPE)
    with (tmp_path / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [{name: str(value) for name, value in asdict(row).items()} for row in trained.history] == rows
    last = trained.history[-1]
    assert last.training_loss < trained.history[0].training_loss
    assert trained.accuracy == last.test_accuracy
    model, card = load_model(trained.weights)
    assert (card.epochs, card.dataset, card.accuracy) == (3, "few", trained.accuracy)
    model.eval()
    with torch.no_grad():
        logits = model(few.test.images.float() / 255)
    assert float((logits.argmax(1) == few.test.labels).float().mean()) == pytest.approx(trained.accuracy)
    assert float(F.cross_entropy(logits, few.test.labels)) == pytest.approx(last.test_loss, rel=1e-4)


def test_training_figures_are_of_the_batches_that_were_learned_from(few: Dataset, tmp_path: Path) -> None:
    # One batch per epoch, so that the network before it is known.
    trained = train(few, "mlp-16", tmp_path, recipe=Recipe(epochs=1, batch_size=len(few.train)), seed=5)
    ((images, labels),) = training_loader(few.train, batch_size=len(few.train), seed=5)
    with torch.no_grad():
        logits = untrained_model("mlp-16", few, seed=5)(images)
    (row,) = trained.history
    assert row.training_accuracy == pytest.approx(float((logits.argmax(1) == labels).float().mean()))
    assert row.training_loss == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-5)


def test_one_class_is_refused(few: Dataset, tmp_path: Path) -> None:
    alone = Dataset(
        "alone", *(ImageSet(one.images, torch.zeros_like(one.labels), ("a",)) for one in (few.train, few.test))
    )
    with pytest.raises(GradveilError, match="images of 2 classes or more, got 1"):
        train(alone, "mlp-16", tmp_path / "run", recipe=Recipe(epochs=1))
    assert not (tmp_path / "run").exists()


def test_the_recipe_is_the_published_one() -> None:
    assert Recipe().drops == [22, 38, 52]
    assert (Recipe().lr, Recipe().momentum, Recipe().weight_decay, Recipe().batch_size) == (0.1, 0.9, 5e-4, 128)


def test_a_finished_training_is_not_redone_and_another_one_is_refused(few: Dataset, tmp_path: Path) -> None:
    first = train(few, "convnet-4", tmp_path, recipe=Recipe(epochs=1))
    written = first.weights.stat().st_mtime_ns
    assert train(few, "convnet-4", tmp_path, recipe=Recipe(epochs=1)) == first
    assert first.weights.stat().st_mtime_ns == written
    with pytest.raises(GradveilError, match="another recipe"):
        train(few, "convnet-4", tmp_path, recipe=Recipe(epochs=2))
    with pytest.raises(GradveilError, match="another model"):
        train(few, "convnet-5", tmp_path, recipe=Recipe(epochs=1))


def test_a_damaged_checkpoint_is_named(few: Dataset, tmp_path: Path) -> None:
    train(few, "convnet-4", tmp_path, recipe=Recipe(epochs=1))
    (tmp_path / "last.ckpt").write_bytes(b"damaged")
    with pytest.raises(GradveilError, match=r"last\.ckpt: damaged checkpoint"):
        train(few, "convnet-4", tmp_path, recipe=Recipe(epochs=1))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("state_dict", None),
        ("state_dict", {"network.other": torch.ones(1)}),
        ("optimizer_states", None),
        ("optimizer_states", [{}]),
        ("lr_schedulers", None),
        ("lr_schedulers", [3]),
        ("loops", None),
        ("loops", {"fit_loop": {}}),
        ("callbacks", None),
        ("callbacks", {"TrainingProgress": {"history": []}}),
        ("callbacks", {"TrainingProgress": {"history": [{"epoch": "one"}]}}),
        ("callbacks", {"TrainingProgress": {}}),
    ],
)
def test_a_checkpoint_without_a_part_is_one_line(
    half_trained: Path, few: Dataset, tmp_path: Path, part: str, value: object
) -> None:
    folder = shutil.copytree(half_trained, tmp_path / "run")
    whole = torch.load(folder / "last.ckpt", weights_only=True)
    torch.save({**whole, part: value} if value else {k: v for k, v in whole.items() if k != part}, folder / "last.ckpt")
    with pytest.raises(GradveilError, match=r"last\.ckpt: damaged checkpoint .* remove it to train from the start"):
        train(few, "convnet-4", folder, recipe=Recipe(epochs=2))


@pytest.fixture(scope="module")
def half_trained(few: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two epochs that was killed in the second."""
    folder = tmp_path_factory.mktemp("half")
    with pytest.raises(Killed):
        train(few, "convnet-4", folder, recipe=Recipe(epochs=2), progress=killed_after(3))
    assert (folder / "last.ckpt").is_file()
    return folder


class Killed(Exception):
    pass


def killed_after(steps: int) -> Progress:
    """A progress bar that ends the training in the middle."""

    @contextmanager
    def bar(title: str, total: int, unit: Unit) -> Iterator[Advance]:
        done = 0

        def advance(units: int) -> None:
            nonlocal done
            done += units
            if done >= steps:
                raise Killed

        yield advance

    return bar


@pytest.mark.parametrize(
    ("defense", "workers"),
    [("none", 1), ("prune:0.9", 0), ("gaussian:1e-3", 0), ("precode:k=8", 0), ("3-1-7 | precode:k=8 | clip:1", 0)],
)
def test_interrupted_training_ends_with_the_same_weights(
    few: Dataset, tmp_path: Path, defense: str, workers: int
) -> None:
    def run(folder: str, progress: Progress = silent) -> Path:
        return train(
            few,
            "mlp-16",
            tmp_path / folder,
            recipe=RECIPE,
            defense=parse_defense(defense),
            workers=workers,
            progress=progress,
        ).weights

    whole = run("whole")
    for steps in (4, 12, 18):
        with pytest.raises(Killed):
            run("killed", killed_after(steps))
    assert run("killed").read_bytes() == whole.read_bytes()
    for name in ("best.safetensors", "history.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@dataclass(frozen=True)
class Doubled(Defense):
    """A participant that computes its gradient in its own way."""

    def client(self, client: Client, *, seed: int) -> Client:
        return lambda model, batch: {name: 2 * one for name, one in client(model, batch).items()}


@dataclass(frozen=True)
class Sampled(PoissonSampled):
    """Asks for Poisson sampling, and divides by the images it was told to expect."""

    expected: float | None = None

    def with_expected_batch(self, expected: float) -> "Sampled":
        return Sampled(expected)

    def client(self, client: Client, *, seed: int) -> Client:
        assert self.expected is not None

        def summed(model: nn.Module, batch: Batch) -> Gradients:
            if not len(batch.images):
                return {name: torch.zeros_like(one) for name, one in model.named_parameters()}
            scale = len(batch.images) / (self.expected or 0)
            return {name: scale * one for name, one in client(model, batch).items()}

        return summed


@pytest.mark.parametrize("name", ["none", "prune:0.9", "gaussian:1e-2", "precode:k=8", "3-1-7 | clip:0.5", "doubled"])
def test_defended_training_equals_a_loop_by_hand(few: Dataset, tmp_path: Path, name: str) -> None:
    defense = Doubled() if name == "doubled" else parse_defense(name)
    recipe = Recipe(epochs=2, batch_size=100, lr=0.05)
    trained = train(few, "convnet-2", tmp_path, recipe=recipe, defense=defense, seed=1)
    network = defense.network(untrained_model("convnet-2", few, seed=1), seed=1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    order, step = ShuffledBatches(len(few.train), 100, 1), 0
    for epoch in range(2):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * 0.1 ** sum(drop <= epoch for drop in recipe.drops)
        order.set_epoch(epoch)
        for _, indices in order:
            cropped = crop_and_flip(few.train.images[indices], indices, 1, epoch)
            images = defense.images(cropped, seed=derive_seed(1, "epoch", epoch), indices=indices)
            # Of one channel, every layout is channels last to torch, and rounding differs by the layout.
            unit = torch.empty(images.shape, memory_format=torch.channels_last).copy_(to_unit(images))
            batch = Batch(unit, few.train.labels[indices])
            with drawing(network, normal_source(generator(1, "draws", "step", step))):
                shared = defense.share(gradient, network, batch, seed=derive_seed(1, "step", step))
            for parameter_name, parameter in network.named_parameters():
                parameter.grad = shared[parameter_name]
            optimizer.step()
            step += 1
    state = load_file(trained.weights)
    assert state.keys() == network.state_dict().keys()
    for tensor_name, tensor in network.state_dict().items():
        assert torch.equal(state[tensor_name], tensor), tensor_name


@pytest.mark.parametrize("defense", ["none", "soteria"])
def test_dropout_is_drawn_by_seed_and_step(few: Dataset, tmp_path: Path, defense: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 10))
    weights: list[dict[str, torch.Tensor]] = []
    for state in (1, 2):  # of whoever calls
        torch.manual_seed(state)
        result = train(few, model, tmp_path / str(state), recipe=Recipe(epochs=1), defense=parse_defense(defense))
        early = untrained_model(model, few)
        train_steps(early, few, 3, defense=parse_defense(defense))
        weights.append(load_file(result.weights) | {f"early {name}": one for name, one in early.state_dict().items()})
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_defense_that_computes_the_gradient_cannot_be_halved(few: Dataset, tmp_path: Path) -> None:
    with pytest.raises(GradveilError, match="computes its own gradient"):
        train(few, "mlp-8", tmp_path, recipe=Recipe(epochs=1, halve_loss=True), defense=Doubled())
    assert not list(tmp_path.iterdir())


def test_poisson_batches_are_independent_draws(few: Dataset) -> None:
    loader = training_loader(few.train, batch_size=24, seed=0, defense=Sampled())
    assert isinstance(loader.sampler, PoissonBatches)
    drawn = []
    for epoch in range(200):
        loader.sampler.set_epoch(epoch)
        drawn += [indices for _, indices in loader.sampler]
    assert len(drawn) == 2000
    sizes = torch.tensor([len(indices) for indices in drawn], dtype=torch.float64)
    # Binomial(240, 0.1): mean 24, variance 21.6.
    assert float(sizes.mean()) == pytest.approx(24, abs=4 * (21.6 / 2000) ** 0.5)
    assert float(sizes.var()) == pytest.approx(21.6, rel=4 * (2 / 2000) ** 0.5)
    counts = torch.cat(drawn).bincount(minlength=240).double()
    assert float(((counts - 200) ** 2 / 180).mean()) == pytest.approx(1, abs=4 * (2 / 240) ** 0.5)


def test_training_copes_with_empty_batches(few: Dataset, tmp_path: Path) -> None:
    tiny = Dataset("tiny", few.train.take(range(12)), few.test)
    recipe = Recipe(epochs=3, batch_size=1, lr=0.01)
    trained = train(tiny, "mlp-8", tmp_path, recipe=recipe, defense=Sampled())
    order = PoissonBatches(12, 1, 0)
    sizes = []
    for epoch in range(3):
        order.set_epoch(epoch)
        sizes += [len(indices) for _, indices in order]
    assert 0 in sizes
    assert len(set(sizes)) > 2
    with (tmp_path / "history.csv").open() as file:
        assert all(float(row["training_loss"]) > 0 for row in csv.DictReader(file))
    assert all(bool(tensor.isfinite().all()) for tensor in load_file(trained.weights).values())


def test_weights_of_a_defended_training_know_their_network(few: Dataset, tmp_path: Path) -> None:
    recipe = Recipe(epochs=1)
    trained = train(few, "lenet", tmp_path / "precode", recipe=recipe, defense=parse_defense("precode:k=8"))
    network, card = load_model(trained.weights)
    assert card.defense == "precode:k=8"
    assert list(bottlenecks(network)) == ["net.classify.precode"]
    for defense in (None, "none", "precode:k=8", "precode:k=8 | prune:0.9"):
        opened = NetworkOptions(weights=trained.weights).open(
            few, 0, device=CPU, defense=defense and parse_defense(defense)
        )
        assert list(bottlenecks(opened.module)) == ["net.classify.precode"]
        assert str(opened.stage) == "trained for 1 epochs with precode:k=8"
        assert all(torch.equal(opened.module.state_dict()[name], one) for name, one in network.state_dict().items())
    with pytest.raises(GradveilError, match="changes the network otherwise"):
        NetworkOptions(weights=trained.weights).open(few, 0, device=CPU, defense=parse_defense("precode:k=16"))
    plain = train(few, "lenet", tmp_path / "prune", recipe=recipe, defense=parse_defense("prune:0.5"))
    opened = NetworkOptions(weights=plain.weights).open(few, 0, device=CPU, defense=parse_defense("precode"))
    assert str(opened.stage) == "trained for 1 epochs with prune:0.5, what the defense adds untrained"


@pytest.mark.parametrize("defense", ["somewhere/best.json", "best", "3-1-7 | train-only:best", "nonsense"])
def test_a_card_with_a_strange_defense_is_refused(
    few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defense: str
) -> None:
    network = untrained_model("mlp-2", few)
    card = ModelCard("mlp-2", few.train.image_shape, few.train.classes, "few", 0, 1.0, None, defense, "0.1.0")
    save_weights(tmp_path / "odd.safetensors", network, card)
    # A policy file of that name is there, and is not opened.
    save_policy(tmp_path / "best", PolicyFile(Policy.parse("3-1-7"), {}, Provenance("few", "mlp", 0)))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GradveilError, match=r"odd\.safetensors: trained with a defense"):
        load_model(tmp_path / "odd.safetensors")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"seed": 0', '"seed": Infinity'),
        ('"epochs": 1.0', '"epochs": 1' + 400 * "0"),
        ('"image_shape": [1, 28, 28]', '"image_shape": [1, 28]'),
        ('"image_shape": [1, 28, 28]', '"image_shape": [1, 0, 28]'),
        ('"dataset": "few"', f'"dataset": {"[" * 9000}'),
    ],
)
def test_a_card_from_anyone_is_one_line(few: Dataset, tmp_path: Path, before: str, after: str) -> None:
    network = untrained_model("mlp-2", few)
    card = ModelCard("mlp-2", few.train.image_shape, few.train.classes, "few", 0, 1.0, None, "none", "0.1.0")
    text = json.dumps(asdict(card), sort_keys=True)
    assert before in text
    path = tmp_path / "odd.safetensors"
    save_file(dict(network.state_dict()), path, metadata={"gradveil-weights-2": text.replace(before, after)})
    with pytest.raises(GradveilError, match=r"odd\.safetensors: its (model )?card is damaged"):
        load_model(path)


@pytest.mark.long
def test_killed_at_random_moments_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    def command(folder: str) -> list[str]:
        options = [
            "--dataset",
            "fashion-mnist-tenth[:10%]",
            "--model",
            "convnet-2",
            "--defense",
            "3-1-7 | precode:k=16 | prune:0.9",
        ]
        return ["train", *options, "--epochs", "6", "--batch-size", "20", "--out", str(tmp_path / folder)]

    kills, checkpoint = 0, tmp_path / "killed" / "last.ckpt"
    for seconds in (0.0, 0.1, 0.3):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = start_command(*command("killed"))
        deadline = time.monotonic() + 600
        while not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(seconds)
        kills += process.is_alive()
        process.kill()
        process.join()
    assert kills, "the runs ended before they could be killed"
    for folder in ("whole", "killed"):
        ended = CliRunner().invoke(app, command(folder))
        assert ended.exit_code == 0, ended.output
    for name in ("last.safetensors", "best.safetensors", "history.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()


def test_tensorboard_logs_are_written_on_request(few: Dataset, tmp_path: Path) -> None:
    train(few, "convnet-4", tmp_path, recipe=Recipe(epochs=1), tensorboard=True)
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_every_epoch_draws_anew(few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = AugmentedImages.__getitem__

    def watching(self: AugmentedImages, ticket: EpochIndices) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(ticket[0])
        return original(self, ticket)

    monkeypatch.setattr(AugmentedImages, "__getitem__", watching)
    train(few, "convnet-4", tmp_path, recipe=Recipe(epochs=3, batch_size=120))
    assert seen == [0, 0, 1, 1, 2, 2]
    first, second = (crop_and_flip(few.train.images, torch.arange(len(few.train)), 0, epoch) for epoch in (0, 1))
    assert not torch.equal(first, second)
