"""From a scenario to records: batches, clients, stages, knowledge, pictures."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from gradveil.defenses import Defense
from gradveil.errors import GradveilError
from gradveil.io.animation import to_gif
from gradveil.leakage.measuring import measure
from gradveil.leakage.metrics import mse, psnr
from gradveil.leakage.results import assignment
from gradveil.leakage.scenario import ScenarioKey
from gradveil.leakage.shares import split
from gradveil.models import build, untrained_model
from gradveil.training.early import train_steps
from gradveil.training.stage import Stage
from gradveil.types import Dataset, to_unit

SCENARIO = ScenarioKey("fashion-mnist-tenth", "convnet-4", Stage(), "none", "fast", 4, 0)


def test_guesses_are_matched_one_to_one() -> None:
    targets = torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.equal(targets[order][assignment(targets[order], targets)], targets)
    # The first guess is nearest to both targets; only one may have it.
    guesses = torch.stack([torch.full((1, 2, 2), value) for value in (0.5, 0.0)])
    both = torch.stack([torch.full((1, 2, 2), value) for value in (0.45, 0.55)])
    assert assignment(guesses, both).tolist() == [1, 0]


def test_units() -> None:
    assert split([4, 2, 7, 1], 2) == [(4, 2), (7, 1)]
    with pytest.raises(GradveilError, match="5 images cannot be split into batches of 2"):
        split([0, 1, 2, 3, 4], 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 4},
        {"batch": 4, "labels": "read"},
        {"batch": 4, "client": "fedavg:batch=1,lr=0.01"},
        {"batch": 4, "client": "fedavg:batch=2,lr=0.01,order=1", "ordered": False},
        {"batch": 4, "users": 2},
        {"batch": 2, "batch_norm": "train"},
        {"start": "class-mean"},
        {"together": False},
        {"defense": "3-1-7", "attacker": "adaptive"},
        {"defense": "3-1-7", "attacker": "draw"},
        {"defense": "3-1-7 | prune:0.9", "attacker": "simulate"},
        {"defense": "gaussian:1e-3", "attacker": "adaptive"},
    ],
    ids=str,
)
def test_whatever_is_attacked(
    fashion: Dataset, small_net: nn.Module, tmp_path: Path, changes: dict[str, object]
) -> None:
    scenario = replace(SCENARIO, **changes)  # type: ignore[arg-type]
    records = measure(scenario.parse(), small_net, fashion.test, [0, 1, 2, 3], tmp_path, public=fashion.train)
    assert [record.index for record in records] == [0, 1, 2, 3]
    assert {len(record.unit) for record in records} == {scenario.batch}
    assert all(record.knowledge["batch size"] == f"known, {scenario.batch}" for record in records)
    assert all(record.labels_read is not None and 0 <= record.labels_read <= 1 for record in records)
    assert all(record.rank is not None and record.placebo is not None for record in records)
    assert len(list((tmp_path / "gifs").iterdir())) == 4
    again = measure(scenario.parse(), small_net, fashion.test, [0, 1, 2, 3], tmp_path, public=fashion.train)
    assert again == records


def test_figures_are_those_of_the_pictures(fashion: Dataset, small_net: nn.Module, tmp_path: Path) -> None:
    (record,) = measure(SCENARIO.parse(), small_net, fashion.test, [3], tmp_path)
    from gradveil.io.pictures import from_png

    private = to_unit(fashion.test.images[3:4])
    rebuilt, estimate = (
        to_unit(torch.from_numpy(np.array(from_png(record.pictures[name]))).view(1, 1, 28, 28))
        for name in ("reconstruction", "estimate")
    )
    assert float(mse(estimate, private)) == pytest.approx(record.mse, rel=0.02)
    assert float(psnr(rebuilt, private)) == pytest.approx(record.published_psnr, abs=0.1)  # nothing was transformed
    assert record.detail == record.psnr - record.guess_psnr
    assert record.figures()["detail"] == pytest.approx(record.detail, abs=1e-4)
    assert record.figures()["percentile"] == pytest.approx(record.percentile, abs=1e-4)
    assert record.similarity["iterations"] == (1.0, 2.0, 3.0, 4.0)
    layers = [name.partition(" ")[0] for name in record.similarity]
    assert sorted(layers) == ["all", "deep", "deep", "deep", "iterations", "shallow", "shallow", "shallow"]
    assert set(record.layers) == {name for name, _ in small_net.named_parameters()}


def test_what_the_attacker_knew_is_written_down(fashion: Dataset, small_net: nn.Module, tmp_path: Path) -> None:
    scenario = replace(
        SCENARIO,
        batch=2,
        users=2,
        client="fedavg:order=1",
        ordered=False,
        labels="read",
        start="zeros",
        iterations=1,
    )
    known = measure(scenario.parse(), small_net, fashion.test, [0, 1], tmp_path)[0].knowledge
    assert known["label"] == "read off the gradient"
    assert known["initial guess"] == "zeros"
    assert known["order of the images"] == "unknown, labels sorted"
    assert known["users"] == "only the mean of 2 is seen, who has which label is known"
    assert "fedavg" in known["local training"]
    assert known["defense"] == "not used"


def test_scenarios_that_cannot_be() -> None:
    for changes, hint in (
        ({"labels": "guessed"}, "expected labels known, read, joint"),
        ({"batch_norm": "both"}, "expected batch norm eval, train"),
        ({"batch": 3, "users": 2}, "3 images cannot be split evenly among 2 users"),
    ):
        with pytest.raises(GradveilError, match=hint):
            replace(SCENARIO, **changes).parse()  # type: ignore[arg-type]


def test_the_first_steps_of_a_training(fashion: Dataset) -> None:
    class Halved(Defense):
        def gradients(self, gradients: dict[str, torch.Tensor], *, seed: int) -> dict[str, torch.Tensor]:
            return {name: tensor / 2 for name, tensor in gradients.items()}

    fresh = untrained_model("lenet", fashion)
    plain, again, halved = (untrained_model("lenet", fashion) for _ in range(3))
    train_steps(plain, fashion, 1, defense=Defense())
    train_steps(again, fashion, 1, defense=Defense())
    train_steps(halved, fashion, 1, defense=Halved())
    for start, one, two, half in zip(*(net.parameters() for net in (fresh, plain, again, halved)), strict=True):
        assert torch.equal(one, two)
        # Weight decay is not halved, and small.
        torch.testing.assert_close(2 * (start - half), start - one, atol=2e-5, rtol=0.05)
    assert not plain.training
    longer = untrained_model("convnet-4", fashion)
    train_steps(longer, fashion, 50, defense=Defense())  # more than an epoch of 47 batches
    with torch.no_grad():
        right = longer(to_unit(fashion.test.images[:200])).argmax(1) == fashion.test.labels[:200]
    assert float(right.float().mean()) > 0.3
    with pytest.raises(GradveilError, match="0 to 100000, got -1"):
        train_steps(longer, fashion, -1, defense=Defense())


def test_an_animation_rests_on_its_last_frame() -> None:
    frames = torch.randint(0, 256, (3, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    picture = Image.open(io.BytesIO(to_gif(frames)))
    assert (picture.width, picture.height, picture.n_frames) == (112, 112, 3)  # type: ignore[attr-defined]
    picture.seek(2)
    assert picture.info["duration"] > 1000


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 224, 224)])
def test_larger_and_coloured_images(shape: tuple[int, int, int], tmp_path: Path) -> None:
    from gradveil.types import ImageSet

    images = torch.randint(0, 256, (2, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    made = ImageSet(images, torch.tensor([0, 1]), ("a", "b"))
    records = measure(replace(SCENARIO, iterations=1).parse(), build("convnet-4", shape, 2), made, [0, 1], tmp_path)
    assert all(record.iterations == 1 for record in records)


@pytest.mark.parametrize("classes", [("a", "b"), ("a",)], ids=["two classes", "one class"])
def test_images_of_one_pixel_can_be_attacked(classes: tuple[str, ...], tmp_path: Path) -> None:
    from gradveil.types import ImageSet

    levels = torch.arange(8, dtype=torch.uint8).view(8, 1, 1, 1).repeat(1, 3, 1, 1) * 30
    made = ImageSet(levels, torch.arange(8) % len(classes), classes)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3, len(classes)))
    scenario = replace(SCENARIO, iterations=1).parse()
    records = measure(scenario, network, made, [0, 1], tmp_path, public=made)
    assert all(record.rank is not None and -1 <= record.ssim <= 1 for record in records)


def test_resnet152_runs(fashion: Dataset, tmp_path: Path) -> None:
    scenario = replace(SCENARIO, model="resnet152-8", iterations=1)
    (record,) = measure(scenario.parse(), untrained_model("resnet152-8", fashion), fashion.test, [0], tmp_path)
    assert record.iterations == 1
