"""Gradients that a user saved somewhere else."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from click.testing import Result
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import gradveil
from gradveil.attacks.inverting import invert, read_gradients
from gradveil.cli import app
from gradveil.client import FedAvg, share
from gradveil.errors import GradveilError
from gradveil.io.pictures import to_pil
from gradveil.leakage import metrics
from gradveil.models import build
from gradveil.types import Batch, Dataset, to_unit

SHAPE = (1, 28, 28)


class TheirNet(nn.Module):
    """A model that knows nothing of this library."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(784, 32)
        self.second = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.sigmoid(self.first(x.flatten(1))))  # type: ignore[no-any-return]


@pytest.fixture
def saved(fashion: Dataset, tmp_path: Path) -> tuple[nn.Module, Path, Batch]:
    torch.manual_seed(0)
    model = TheirNet()
    batch = Batch(to_unit(fashion.test.images[:1]), fashion.test.labels[:1])
    save_file(share(model, batch), tmp_path / "g.safetensors")
    return model, tmp_path / "g.safetensors", batch


@pytest.mark.parametrize("attack", ["analytic", "idlg", "dlg"])
def test_a_saved_gradient_of_somebody_elses_model(saved: tuple[nn.Module, Path, Batch], attack: str) -> None:
    model, path, batch = saved
    found = gradveil.invert(model, path, attack=attack, image_shape=SHAPE, seed=0)
    assert found.images.shape == (1, *SHAPE)
    assert found.labels is not None
    assert found.labels.tolist() == batch.labels.tolist()
    assert float(metrics.psnr(found.images, batch.images)) > 30


def test_dropout_is_drawn_by_the_seed(fashion: Dataset) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.Dropout(0.5), nn.Linear(8, 10))
    gradients = share(model, Batch(to_unit(fashion.test.images[:1]), fashion.test.labels[:1]))
    found = [invert(model, gradients, [0], attack="fast:iterations=2", image_shape=SHAPE).images for _ in range(2)]
    assert torch.equal(found[0], found[1])


def test_a_saved_update_of_several_images(fashion: Dataset) -> None:
    model = build("lenet", SHAPE, 10).eval()
    batch = Batch(to_unit(fashion.test.images[:2]), fashion.test.labels[:2])
    client = FedAvg(1e-3, batch=1, epochs=2)
    found = invert(
        model,
        client(model, batch),
        batch.labels.tolist(),
        attack=gradveil.attacks.parse_attack("fast", iterations=3),
        image_shape=SHAPE,
        client=client,
    )
    assert found.images.shape == (2, *SHAPE)


def test_files_that_are_no_gradients(saved: tuple[nn.Module, Path, Batch], tmp_path: Path) -> None:
    model, path, _ = saved
    (tmp_path / "text").write_text("hello")
    (tmp_path / "half").write_bytes(path.read_bytes()[:-100])
    save_file({"first.weight": torch.ones(2, dtype=torch.int64)}, tmp_path / "whole")
    for name, hint in (
        ("missing", "no such gradient file"),
        ("text", "not a readable safetensors file"),
        ("half", "not a readable safetensors file"),
        ("whole", "expected floating point numbers"),
    ):
        with pytest.raises(GradveilError, match=hint):
            invert(model, tmp_path / name, image_shape=SHAPE)


def test_a_file_of_four_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**30], "data_offsets": [0, 2**32]}}).encode()
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(2**32 + 8 + len(header))  # sparse: takes no space
    with pytest.raises(GradveilError, match=r"4\.0 GiB, expected at most 4 GiB"):
        read_gradients(path)


def test_numbers_that_do_not_fit(saved: tuple[nn.Module, Path, Batch]) -> None:
    model, path, _ = saved
    with pytest.raises(GradveilError, match=r"lie in 0\.\.9, got 11\.\.11"):
        invert(model, path, [11], image_shape=SHAPE)
    with pytest.raises(GradveilError, match="3 images need as many labels, got 1"):
        invert(model, path, [1], image_shape=SHAPE, images=3)
    with pytest.raises(GradveilError, match="does not take images of shape"):
        invert(model, path, [1], image_shape=(3, 32, 32))


class TheirNormedNet(TheirNet):
    """Mixes the images of a batch while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.sigmoid(self.norm(self.first(x.flatten(1)))))  # type: ignore[no-any-return]


def test_the_command_knows_batch_norm_at_work_and_compares_with_originals(
    fashion: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = TheirNormedNet().train()
    batch = Batch(to_unit(fashion.test.images[:2]), fashion.test.labels[:2])
    torch.save(share(model, batch), "g.pt")
    torch.save(model.state_dict(), "w.pt")
    Path("private").mkdir()
    for number in range(2):
        to_pil(fashion.test.images[number]).save(f"private/{number}.png")

    def run(*more: str, weights: Sequence[str] = ("--weights", "w.pt")) -> Result:
        labels = ",".join(map(str, batch.labels.tolist()))
        command = ["invert", "g.pt", "--model", f"{__name__}:TheirNormedNet", "--labels", labels, "--attack", "fast"]
        return CliRunner().invoke(app, [*command, *weights, "--iterations", "10", *more])

    found = json.loads(run("--batch-norm", "train", "--originals", "private", "--json").stdout)
    assert sorted(one["picture"] for one in found["compared"]) == [0, 1]
    attack = gradveil.attacks.parse_attack("fast", iterations=10)
    pictures = []
    for mode in (True, False):
        rebuilt = invert(model.train(mode), "g.pt", batch.labels, attack=attack, image_shape=SHAPE)
        assert rebuilt.trace is not None
        pictures.append((rebuilt.images, float(rebuilt.trace.similarity[-1].mean())))
    (images, similarity), (_, other) = pictures
    assert found["similarity"] == pytest.approx(similarity)
    assert found["similarity"] != pytest.approx(other, abs=1e-3)
    for number, one in enumerate(found["compared"]):
        expected = float(metrics.psnr(images[[one["picture"]]], batch.images[[number]]))
        assert one["psnr"] == pytest.approx(expected, abs=0.01)
    said = run("--batch-norm", "train", "--originals", "private").stderr
    assert f"similarity of the gradients: {found['similarity']:.3f}" in said
    assert f"PSNR {found['compared'][0]['psnr']:.1f} dB" in said
    assert "no --weights" not in said
    assert "no --weights: " in run(weights=()).stderr
    for more, hint in (
        (("--images", "4"), "expected a label per image, got 2 in --labels and --images 4"),
        (("--batch-norm", "on"), "expected batch norm eval, train"),
        (("--originals", "private/0.png"), "expected as many originals as images behind the gradient, 2, got 1"),
        (("--originals", "none.png"), "no such picture"),
        (("--originals", "w.pt"), "not a readable image"),
    ):
        assert hint in str(run(*more).exception)
