"""A new user's whole way through the command line: a network, pictures and a checkpoint that this project has never seen."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

COMMAND = Path(sys.executable).with_name("gradveil")
SHAPE = (3, 16, 16)
NORMALIZE = "0.4,0.5,0.6/0.2,0.25,0.3"
MEAN, STD = (torch.tensor(numbers).reshape(3, 1, 1) for numbers in ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)))
OWN = ["--dataset", "folder:pictures", "--model", "my_nets:Net"]
TRAINED = [*OWN, "--weights", "trained.pt", "--normalize", NORMALIZE]
DEFENSE = "prune:0.9"

NETS = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.classify = nn.Linear(196, 2)

    def forward(self, images):
        return self.classify(self.features(images))
"""

# A script that trains with Lightning, up to the lines that an answer gives.
LIGHTNING = """
import lightning as L
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import gradveil as gv
from my_nets import Net

class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.net.load_state_dict(torch.load("trained.pt", weights_only=True))

    def training_step(self, batch, number):
        mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)))
        return F.cross_entropy(self.net((batch[0] / 255 - mean) / std), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

class Data(L.LightningDataModule):
    def train_dataloader(self):
        data = gv.load("folder:pictures").train
        return DataLoader(TensorDataset(data.images, data.labels), batch_size=1)

module, datamodule = Lit(), Data()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
short = {"max_steps": 3, "accelerator": "cpu", **quiet}
"""

# The same of an app for Flower, and the rest of it.
FLOWER = """
import logging
import time

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from my_nets import Net
"""
APP = """
def client_app():
{lines}

    @app.train()
    def train(message, context):
        net = Net()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        torch.manual_seed(0)
        torch.nn.functional.cross_entropy(net(torch.rand(4, 3, 16, 16)), torch.tensor([0, 1, 0, 1])).backward()
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        content = {{"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({{"num-examples": 4}})}}
        return Message(RecordDict(content), reply_to=message)

    return app

server, sent = ServerApp(), torch.load("trained.pt", weights_only=True)

@server.main()
def main(grid, context):
    while not list(grid.get_node_ids()):
        time.sleep(0.1)
    content = RecordDict({{"arrays": ArrayRecord(sent), "config": ConfigRecord({{"server-round": 1}})}})
    (reply,) = grid.send_and_receive([Message(content, node, "train") for node in grid.get_node_ids()], timeout=600)
    torch.save(reply.content["arrays"].to_torch_state_dict(), "flower.pt")

quiet = {{"num_cpus": 1, "include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}}
resources = {{"num_cpus": 1, "num_gpus": 0}}
run_simulation(server, client_app(), 1, backend_config={{"init_args": quiet, "client_resources": resources}})
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder with what somebody brings along."""
    return bring_along(tmp_path_factory.mktemp("home"), pictures=8)


def bring_along(folder: Path, *, pictures: int) -> Path:
    """A network, so many pictures of each kind to train on, and what a training by hand leaves."""
    (folder / "my_nets.py").write_text(NETS)
    rng = np.random.default_rng(0)
    for part, each in (("train", pictures), ("test", 30)):
        for label, name in enumerate(("cats", "dogs")):
            (folder / "pictures" / part / name).mkdir(parents=True)
            for number in range(each):
                pixels = np.clip(rng.normal(90 + 70 * label, 40, (16, 16, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / "pictures" / part / name / f"{number:02}.png")
    train_by_hand(folder)
    return folder


def train_by_hand(folder: Path) -> None:
    """The user's own training: pictures are normalised in the loader, and a state dict is saved, and a gradient."""
    own = ModuleType("nets")
    exec(NETS, own.__dict__)
    files = sorted((folder / "pictures" / "train").rglob("*.png"))
    raw = torch.stack([torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1) for file in files])
    images, labels = (raw / 255 - MEAN) / STD, torch.tensor([int(file.parent.name == "dogs") for file in files])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net: torch.nn.Module = own.Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()
    torch.save(net.state_dict(), folder / "trained.pt")
    net.eval()
    loss = F.cross_entropy(net(images[:1]), labels[:1])
    gradient = torch.autograd.grad(loss, list(net.parameters()))
    torch.save(dict(zip(dict(net.named_parameters()), gradient, strict=True)), folder / "gradient.pt")


def run(home: Path, *command: str) -> str:
    """What a command prints. Nothing says where the user's folder is but that it is the current one."""
    done = subprocess.run(command, cwd=home, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def environment() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name != "GRADVEIL_DATA"}


def gradveil(home: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(home, str(COMMAND), *arguments, "--json"))
    return found


def audit(home: Path, out: str, *more: str) -> dict[str, Any]:
    usual = ["--images", "2", "--iterations", "2", "--workers", "2", "--no-tune", "--out", out]
    return gradveil(home, "audit", *usual, *more)


def test_a_model_pictures_and_weights_of_ones_own(home: Path) -> None:
    """Audit, search, apply, train, federate and invert, in one go."""
    assert not os.environ.get("PYTHONPATH") or str(home) not in os.environ["PYTHONPATH"]
    audited = audit(home, "audited", *TRAINED, "--defenses", DEFENSE)
    assert {one["defense"] for one in audited["verdicts"]} == {"none", "random", DEFENSE}
    assert (home / "audited" / "report.html").is_file()

    few = ["--budget", "2", "--keep", "1", "--images", "2", "--fresh", "2", "--batches", "1", "--workers", "2"]
    searched = gradveil(home, "search", *TRAINED, *few, "--out", "searched")
    policy = next((home / "searched" / "policies").glob("*.json"))
    assert searched["model"] == f"my_nets:Net@normalize={NORMALIZE}"

    applied = gradveil(home, "apply", str(policy), "pictures/train", "private", "--workers", "2")
    assert applied["written"] == 16

    short = ["--normalize", NORMALIZE, "--defense", str(policy)]
    trained = gradveil(home, "train", *OWN, *short, "--epochs", "1", "--out", "training")
    assert 0 <= trained["accuracy"] <= 1
    small = ["--participants", "2", "--rounds", "1", "--batch", "2", "--out", "federation"]
    federated = gradveil(home, "federate", *OWN, *short, *small)
    assert Path(home, federated["weights"]).is_file()

    shaped = ["--image-shape", "3x16x16", "--classes", "2", "--iterations", "3", "--out", "rebuilt"]
    original = ["--originals", "pictures/train/cats/00.png"]
    own = ["--model", "my_nets:Net", "--weights", "trained.pt", "--normalize", NORMALIZE]
    inverted = gradveil(home, "invert", "gradient.pt", *own, *shaped, *original)
    assert inverted["labels"] == [0]
    assert (home / "rebuilt" / "0.png").is_file()


@pytest.mark.long
def test_what_is_recommended_is_applied_and_audited_again(tmp_path: Path) -> None:
    """By the lines that the answer gives, in Lightning and in Flower."""
    pytest.importorskip("ray")
    home, sigma = bring_along(tmp_path, pictures=60), 10
    # Noise far beyond the gradient, so that there is an answer whatever else the attacks do.
    few = ["--candidates", f"{DEFENSE},gaussian:{sigma}", "--points", "100", "--rounds", "3", "--check", "24"]
    recommended = gradveil(home, "recommend", *TRAINED, *few, "--budget", "60", "--workers", "2", "--out", "advice")
    assert {one["name"] for one in recommended["figures"]} == {"none", DEFENSE, f"gaussian:{sigma}"}
    answers = {one["question"]: one for one in recommended["answers"]}
    answer = answers["Cheapest that holds"]
    assert answer["candidate"] == f"gaussian:{sigma}"
    command, *lines = answer["apply"]
    program, *options = shlex.split(command)
    assert program == COMMAND.name
    small = ["--participants", "2", "--rounds", "1", "--out", "federation"]
    assert Path(home, gradveil(home, *options, *small)["weights"]).is_file()
    parts = [at for at, line in enumerate(lines) if line.startswith("#")]
    assert [lines[at].split(",")[0] for at in parts] == ["# Lightning", "# Flower"]
    lightning, flower = lines[: parts[1]], lines[parts[1] :]

    # As printed, but for how long to train.
    mine = [line.replace("L.Trainer(", "L.Trainer(**short, ") for line in lightning]
    (home / "with_lightning.py").write_text("\n".join([LIGHTNING, *mine, 'trainer.save_checkpoint("lightning.ckpt")']))
    app = APP.format(lines="\n".join(f"    {line}" for line in flower))
    (home / "with_flower.py").write_text(FLOWER + app)
    for script in ("with_lightning.py", "with_flower.py"):
        run(home, sys.executable, script)
    before, after = (torch.load(home / name, weights_only=True) for name in ("trained.pt", "flower.pt"))
    # A step of rate 0.1 along the gradient, which is small beside the noise.
    noise = (before["classify.weight"] - after["classify.weight"]) / 0.1
    assert float(noise.std()) == pytest.approx(sigma, rel=0.2)

    usual = [*OWN, "--normalize", NORMALIZE, "--defenses", answer["candidate"]]
    for weights, out in (("lightning.ckpt", "again-lightning"), ("flower.pt", "again-flower")):
        assert audit(home, out, *usual, "--weights", weights)["verdicts"]
        assert "<h1>Audit of my_nets:Net on " in (home / out / "report.html").read_text()
