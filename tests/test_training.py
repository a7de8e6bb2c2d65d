import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.models.weights import load_model
from gradveil.training import Recipe, train
from gradveil.training.batches import AugmentedImages, Ticket, crop_and_flip, training_loader
from gradveil.transforms import Policy
from gradveil.types import Dataset

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
    policy = Policy.parse("3-1-7+43-18-18")
    passes = []
    for workers in (0, 2):
        loader = training_loader(few.train, batch_size=50, seed=3, policy=policy, workers=workers)
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
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert trained.accuracy == pytest.approx(float(rows[-1]["accuracy"]))
    model, card = load_model(trained.weights)
    assert (card.epochs, card.dataset, card.accuracy) == (3, "few", trained.accuracy)
    model.eval()
    with torch.no_grad():
        guesses = model(few.test.images.float() / 255).argmax(1)
    assert float((guesses == few.test.labels).float().mean()) == pytest.approx(trained.accuracy)


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


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    def command(folder: str) -> list[str]:
        options = ["--dataset", "fashion-mnist-tenth[:10%]", "--model", "convnet-4", "--policy", "3-1-7"]
        length = ["--epochs", "6", "--batch-size", "20"]
        return [sys.executable, "-m", "gradveil", "train", *options, *length, "--out", str(tmp_path / folder)]

    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command("whole"), check=True, env=environment, capture_output=True)
    kills = 0
    for seconds in (0.5, 1.2, 2.5):
        process = subprocess.Popen(command("killed"), env=environment, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (tmp_path / "killed" / "settings.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(seconds)
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert kills, "the runs ended before they could be killed"
    subprocess.run(command("killed"), check=True, env=environment, capture_output=True)
    for name in ("last.safetensors", "best.safetensors", "history.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()


def test_tensorboard_logs_are_written_on_request(few: Dataset, tmp_path: Path) -> None:
    train(few, "convnet-4", tmp_path, recipe=Recipe(epochs=1), tensorboard=True)
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_every_epoch_draws_anew(few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = AugmentedImages.__getitem__

    def watching(self: AugmentedImages, ticket: Ticket) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(ticket[0])
        return original(self, ticket)

    monkeypatch.setattr(AugmentedImages, "__getitem__", watching)
    train(few, "convnet-4", tmp_path, recipe=Recipe(epochs=3, batch_size=120))
    assert seen == [0, 0, 1, 1, 2, 2]
    first, second = (crop_and_flip(few.train.images, torch.arange(len(few.train)), 0, epoch) for epoch in (0, 1))
    assert not torch.equal(first, second)
