"""Weights that load and do not fit: what is said, and that it is true."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from gradveil.auditing.doubtful_weights import candidates, doubt_weights
from gradveil.cli import app
from gradveil.models.normalizing import parse_normalization, with_normalization
from gradveil.types import Dataset, ImageSet, to_unit

IMAGES = 80


def small_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 10),
    )


def build(image_shape: tuple[int, int, int], classes: int) -> nn.Module:
    """For `--model`."""
    return small_network()


def trained(fashion: Dataset, mean: float, std: float) -> nn.Sequential:
    """A network of the user's, of a loader that normalises."""
    torch.manual_seed(0)
    network = small_network()
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    images = (to_unit(fashion.train.images) - mean) / std
    for _ in range(2):
        for some in torch.randperm(len(images)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[some]), fashion.train.labels[some]).backward()
            optimizer.step()
    return network


@pytest.fixture(scope="module")
def few(fashion: Dataset) -> Dataset:
    return replace(fashion, test=fashion.test.take(range(IMAGES)))


@pytest.fixture(scope="module")
def normalized(fashion: Dataset) -> nn.Sequential:
    return trained(fashion, 0.286, 0.353)


@pytest.fixture(scope="module")
def plain(fashion: Dataset) -> nn.Sequential:
    return trained(fashion, 0.0, 1.0)


def right(network: nn.Module, images: ImageSet) -> int:
    with torch.no_grad():
        return int((network(to_unit(images.images)).argmax(1) == images.labels).sum())


def test_weights_that_classify_by_chance_are_doubted(fashion: Dataset) -> None:
    """Trained on normalised images, audited without saying so: the usual mistake."""
    few = replace(fashion, test=fashion.test.take(range(200)))
    # Nearest class mean as a linear network: right far more often than chance, on images as they are.
    means = torch.stack(
        [to_unit(fashion.train.images[fashion.train.labels == one]).mean(0).flatten() for one in range(10)]
    )
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    with torch.no_grad():
        network[1].weight.copy_(means)
        network[1].bias.copy_(-means.square().sum(1) / 2)
    assert doubt_weights(network, few) is None
    assert "--normalize" in (doubt_weights(nn.Sequential(nn.Threshold(9.0, 1.0), network), few) or "")
    assert doubt_weights(nn.Sequential(nn.Flatten(), nn.Linear(784, 1)), few) is None  # one score for all classes
    assert network.training


def test_a_forgotten_normalization_is_found_and_spelled(normalized: nn.Sequential, few: Dataset) -> None:
    """Better than chance without it, and much better with it."""
    said = doubt_weights(normalized, few)
    assert said is not None
    found = re.search(r"(\d+) of 80 .* and (\d+) with --normalize ([0-9./]+):", said)
    assert found, said
    option = parse_normalization(found[3])
    told = with_normalization(normalized, option.mean, option.std)
    assert (int(found[1]), int(found[2])) == (right(normalized, few.test), right(told, few.test))
    assert IMAGES / 10 < int(found[1]) < int(found[2])
    # Once it is said, nothing is left to say.
    assert doubt_weights(told, few) is None


def test_who_does_not_normalize_is_not_bothered(plain: nn.Sequential, few: Dataset) -> None:
    assert doubt_weights(plain, few) is None


def test_networks_that_normalize_are_asked_about_something_else(few: Dataset) -> None:
    bare = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    nn.init.zeros_(bare[1].weight)
    said = doubt_weights(with_normalization(bare, (0.5,), (0.5,)), few) or ""
    assert "no better than chance" in said
    assert "--normalize" not in said


def test_candidates_are_spelled_as_the_option(few: Dataset) -> None:
    assert [str(one) for one in candidates(few.train)][1:] == ["0.5/0.5"]
    colour = replace(few.train, images=few.train.images.expand(-1, 3, -1, -1))
    assert [str(one) for one in candidates(colour)][1:] == ["0.5/0.5", "0.485,0.456,0.406/0.229,0.224,0.225"]
    grey = replace(few.train, images=torch.full_like(few.train.images, 9))
    assert [str(one) for one in candidates(grey)] == ["0.5/0.5"]


@pytest.mark.parametrize(
    "command",
    [
        ["attack", "--attack", "fast", "--iterations", "1", "--indices", "0", "--out", "out"],
        ["score", "3-1-7", "--images", "2", "--batches", "1"],
        ["audit", "--images", "1", "--iterations", "1", "--attacks", "fast", "--workers", "1", "--out", "out"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_that_reads_weights_says_it(
    command: list[str], normalized: nn.Sequential, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(normalized.state_dict(), "w.pt")
    own = [*command, "--model", f"{__name__}:build", "--weights", "w.pt"]
    done = CliRunner().invoke(app, own, standalone_mode=False)
    assert done.exit_code == 0, done.exception
    assert done.stderr.count(" with --normalize 0.28") == 1
    told = CliRunner().invoke(app, [*own, "--normalize", "0.286/0.353"], standalone_mode=False)
    assert "--normalize" not in told.stderr
