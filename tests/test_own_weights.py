"""Weights that somebody saved with torch, Lightning or safetensors, without a card of ours."""

import hashlib
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import lightning as L
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from typer.testing import CliRunner

from gradveil.attacks.inverting import read_gradients
from gradveil.cli import app
from gradveil.errors import GradveilError
from gradveil.io import tensors
from gradveil.models.weights import find_card, load_state
from gradveil.training.networks import NetworkSource
from gradveil.training.stage import Stage
from gradveil.types import Dataset
from lightning_script import QUIET

pytestmark = QUIET


def net(seed: int) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(1, 2, 28), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 10))


class Lit(L.LightningModule):
    """A module with more in it than the network."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = net(1)
        self.probe = nn.Linear(width, 1)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        return logits


def save_lightning(path: Path) -> None:
    trainer = L.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu", enable_model_summary=False)
    trainer.strategy.connect(Lit())
    trainer.save_checkpoint(path)


def with_prefix(prefix: str) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in net(1).state_dict().items()}


SAVERS: dict[str, Callable[[Path], None]] = {
    "plain.safetensors": lambda path: save_file(net(1).state_dict(), path),
    "plain.pt": lambda path: torch.save(net(1).state_dict(), path),
    "old.pth": lambda path: torch.save(net(1).state_dict(), path, _use_new_zipfile_serialization=False),
    "wrapped.pt": lambda path: torch.save({"epoch": 3, "state_dict": net(1).state_dict()}, path),
    "model.pt": lambda path: torch.save({"model": net(1).state_dict(), "best": 0.7}, path),
    "parallel.pt": lambda path: torch.save(with_prefix("module."), path),
    "lightning.ckpt": save_lightning,
}


@pytest.mark.parametrize("name", SAVERS)
def test_weights_that_others_save_are_read(name: str, tmp_path: Path, fashion: Dataset) -> None:
    path = tmp_path / name
    SAVERS[name](path)
    assert find_card(path) is None
    network = NetworkSource(fashion, net(0), path).at(Stage("weights")).module
    expected = net(1).state_dict()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in network.state_dict().items())


class Evil:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path.touch, (Path("ran"),)  # type: ignore[return-value]


def test_files_that_hold_more_than_tensors_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(net(1), "whole.pt")
    torch.save({"state_dict": net(1).state_dict(), "config": Evil()}, "evil.ckpt")
    Path("bare.pt").write_bytes(pickle.dumps(Evil()))
    for name in ("whole.pt", "evil.ckpt", "bare.pt"):
        with pytest.raises(
            GradveilError, match=r"holds objects besides tensors.*save torch\.save\(model\.state_dict"
        ) as error:
            load_state(net(0), Path(name))
        assert "\n" not in str(error.value)
    assert not Path("ran").exists()


def test_damaged_and_foreign_files_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.pt"
    torch.save(net(1).state_dict(), path)
    whole = path.read_bytes()
    for damaged in (whole[:-200], whole[:300], b"PK\x03\x04", b"\x80\x02"):
        path.write_bytes(damaged)
        with pytest.raises(GradveilError, match="not a readable file"):
            load_state(net(0), path)
    torch.save([1, 2], path)
    with pytest.raises(GradveilError, match="expected a state dict, at the top or below state_dict"):
        load_state(net(0), path)
    torch.save(net(1).state_dict() | {"more": torch.ones(1)}, path)
    with pytest.raises(GradveilError, match="'more' is not expected in the file; --model says"):
        load_state(net(0), path)
    torch.save(net(1).state_dict() | {"3.bias": torch.ones(9)}, path)
    with pytest.raises(GradveilError, match=r"'3\.bias' is \(9,\), expected \(10,\)"):
        load_state(net(0), path)
    # An archive may be small and what is in it large.
    monkeypatch.setattr(tensors, "LARGEST_FILE", 2**20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2**21))
    with pytest.raises(GradveilError, match="GiB, expected at most"):
        load_state(net(0), path)


def test_an_archive_with_a_damaged_directory_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(net(1).state_dict(), path)
    path.write_bytes(path.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x03"))
    with pytest.raises(GradveilError, match=r"w\.pt: not a readable file of torch\.save \(BadZipFile"):
        load_state(net(0), path)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of its own kinds of tensors
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Tensor.to_sparse, "is sparse"),
        (Tensor.to_sparse_csr, "is sparse"),
        (lambda one: torch.quantize_per_tensor(one, 0.1, 0, torch.qint8), "is sparse, quantized"),
        (lambda one: one.to("meta"), "without values"),
        (lambda one: one.to(torch.complex64), "complex numbers, expected torch.float32"),
        (lambda one: 1e300 * one.double().sign(), "NaN or infinite"),
    ],
    ids=["sparse", "csr", "quantized", "meta", "complex", "too large"],
)
def test_tensors_that_no_network_computes_with_are_one_line(
    change: Callable[[Tensor], Tensor], said: str, tmp_path: Path
) -> None:
    state = net(1).state_dict()
    torch.save(state | {"3.weight": change(state["3.weight"])}, tmp_path / "w.pt")
    with pytest.raises(GradveilError, match=rf"w\.pt: '3\.weight' (holds )?.*{said}"):
        load_state(net(0), tmp_path / "w.pt")


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.bfloat16, torch.float64])
def test_weights_of_any_precision_are_read(kind: torch.dtype, tmp_path: Path) -> None:
    state = net(1).state_dict()
    save_file(state | {"3.weight": state["3.weight"].to(kind)}, tmp_path / "w.safetensors")
    network = net(0)
    load_state(network, tmp_path / "w.safetensors")
    assert torch.equal(network.state_dict()["3.weight"], state["3.weight"].to(kind).float())


def test_contents_of_any_precision_are_told_apart() -> None:
    kinds = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool, torch.int64)
    hashes = {tensors.content_hash([torch.tensor(value).to(kind)]) for kind in kinds for value in (0, 1)}
    assert len(hashes) == 2 * len(kinds)
    values = torch.arange(6.0).view(2, 3).T
    plain = hashlib.sha256(repr((torch.float32, (3, 2))).encode() + values.contiguous().numpy().tobytes())
    assert tensors.content_hash([values]) == plain.digest()


def test_gradients_may_be_saved_with_torch_too(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2, dtype=torch.float64)}, tmp_path / "g.pt")
    assert read_gradients(tmp_path / "g.pt")["w"].dtype == torch.float32


def test_commands_take_a_checkpoint_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_checkpoint_nets.py").write_text(
        "from torch import nn\n"
        "def build(image_shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Sigmoid(), nn.Linear(12, classes))\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self, num_classes=10):\n"
        "        super().__init__(*build(None, num_classes))\n"
    )
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Sigmoid(), nn.Linear(12, 10)).state_dict(), "w.pt")
    of = ["--weights", "w.pt", "--json"]
    refused = CliRunner().invoke(app, ["attack", *of])
    assert isinstance(refused.exception, GradveilError)
    assert "use --model" in str(refused.exception)
    around = ["--normalize", "0.5/0.25", "--loss", "smoothing=0.1"]
    analytic = ["--attack", "analytic", "--indices", "0", "--workers", "1"]
    for name in ("build", "Net"):
        model = f"own_checkpoint_nets:{name}"
        command = ["attack", *of, "--model", model, *analytic, *around]
        found = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)
        assert found["stage"] == "weights as given"
        assert found["model"] == f"{model}@normalize=0.5/0.25@smoothing=0.1"
        assert found["images"][0]["published_psnr"] > 40
