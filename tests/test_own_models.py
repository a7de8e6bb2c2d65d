"""Networks as others write them: normalised in the loader, with any norm, with attention, trained with another loss."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gradveil as gv
from gradveil.attacks import ClosedForm, Evidence, parse_attack
from gradveil.attacks.labels import read_labels
from gradveil.attacks.together import Task, run_together
from gradveil.cli.options import name_around
from gradveil.client import FedAvg, share
from gradveil.errors import GradveilError
from gradveil.leakage.measuring import measure
from gradveil.leakage.metrics import psnr
from gradveil.leakage.scenario import Scenario
from gradveil.models import build, model_name
from gradveil.models.normalizing import normalization, with_normalization
from gradveil.training.stage import Stage
from gradveil.types import Batch, Dataset, to_unit

SHAPE = (1, 28, 28)
MEAN, STD = (0.2860,), (0.3530,)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().eval()


def small() -> nn.Module:
    # Narrower ones hold LBFGS up on some machines.
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Sigmoid(), nn.Linear(64, 10))


def batch_of(dataset: Dataset, count: int) -> Batch:
    return Batch(to_unit(dataset.test.images[:count]), dataset.test.labels[:count])


def test_a_normalised_copy_computes_what_the_loader_and_the_model_do(fashion: Dataset) -> None:
    own, batch = seeded(small), batch_of(fashion, 2)
    wrapped = with_normalization(own, MEAN, STD)
    assert list(wrapped.state_dict()) == list(own.state_dict())
    loaded = replace(batch, images=(batch.images - MEAN[0]) / STD[0])
    for name, gradient in share(own, loaded).items():
        torch.testing.assert_close(share(wrapped, batch)[name], gradient)
    # The caller's model has no hook.
    assert torch.equal(own(batch.images), copy.deepcopy(own)(batch.images))
    assert not torch.equal(own(batch.images), wrapped(batch.images))
    units = normalization(wrapped, 1)
    assert [float(units.mean), float(units.std)] == pytest.approx([MEAN[0], STD[0]])


@pytest.mark.parametrize("attack", ["analytic", "idlg"])
def test_gradients_of_images_normalised_in_the_loader_come_back_as_pixels(attack: str, fashion: Dataset) -> None:
    own, batch = seeded(small), batch_of(fashion, 1)
    gradients = share(own, replace(batch, images=(batch.images - MEAN[0]) / STD[0]))
    found = gv.invert(gv.with_normalization(own, MEAN, STD), gradients, attack=attack, image_shape=SHAPE)
    assert float(psnr(found.images, batch.images)) > 30
    wrong = gv.invert(own, gradients, attack=attack, image_shape=SHAPE)
    assert float(psnr(wrong.images, batch.images)) < 20


def test_what_is_around_a_model_is_spelled_in_one_way() -> None:
    expected = "my_nets:Net@normalize=0.49/0.25@smoothing=0.1"
    assert name_around("my_nets:Net", "0.4900/.25", "smoothing=0.10") == expected
    assert name_around("my_nets:Net@normalize=0.4900/.25@smoothing=0.10", None, None) == expected
    assert name_around("my_nets:Net@cross-entropy", None, None) == "my_nets:Net"


def test_a_models_name_says_what_is_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loader_nets.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(784, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    images = torch.rand(2, *SHAPE)
    bare, whole = (build(f"loader_nets:Net{around}", SHAPE, 10) for around in ("", "@normalize=0.5/0.25@smoothing=0.1"))
    torch.testing.assert_close(whole(images), bare((images - 0.5) / 0.25))
    assert model_name(whole) == "Net@normalize=0.5/0.25@smoothing=0.1"
    labels = torch.tensor([3, 4])
    expected = torch.autograd.grad(
        F.cross_entropy(whole(images), labels, label_smoothing=0.1), list(whole.parameters())
    )
    for gradient, one in zip(share(whole, Batch(images, labels)).values(), expected, strict=True):
        torch.testing.assert_close(gradient, one)
    for name, hint in (
        ("lenet@normalize=0.5/0.25", "normalises its images itself"),
        ("loader_nets:Net@normalize=0.5", "expected means/deviations per channel"),
        (
            "loader_nets:Net@normalize=0.5,0.5,0.5/1,1,1",
            r"expected 1 means and deviations, got 3; the images are \(1, 28, 28\)",
        ),
        ("loader_nets:Net@normalize=0.5/0", "deviations above 0"),
        ("loader_nets:Net@normalize=127.5/127.5", "divide means and deviations by 255"),
        ("lenet@hinge", "expected loss cross-entropy, smoothing=0.1 or bce"),
        ("lenet@smoothing=1.5", "from 0 to below 1"),
    ):
        with pytest.raises(GradveilError, match=hint):
            build(name, SHAPE, 10)


class Pair(nn.Module):
    """A network that also returns its images."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 3)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(images.flatten(1)), images


def test_an_object_that_returns_a_tuple_is_refused_by_an_audit(tmp_path: Path) -> None:
    loader = [(torch.rand(60, 3, 8, 8), torch.arange(60) % 3)]
    with pytest.raises(GradveilError, match="got a tuple from Pair"):
        gv.audit_model(Pair(), loader, tmp_path, images=2)


class ViT(nn.Module):
    """A small vision transformer: patches by convolution or by a fully connected layer, learned positions, class token."""

    def __init__(self, image_shape: tuple[int, int, int] = SHAPE, classes: int = 10, *, linear: bool = False) -> None:
        super().__init__()
        channels, height, _ = image_shape
        self.side, width = 7, 32
        self.linear = linear
        size = channels * self.side**2
        self.embed = nn.Linear(size, width) if linear else nn.Conv2d(channels, width, self.side, stride=self.side)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + (height // self.side) ** 2, width))
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        if self.linear:  # a layout that no convolution has: rows of a patch first, colours last
            side, count = self.side, images.shape[-1] // self.side
            cut = images.unflatten(3, (count, side)).unflatten(2, (count, side))
            tokens = self.embed(cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2))
        else:
            tokens = self.embed(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), tokens], 1) + self.positions
        for block in self.blocks:
            tokens = block(tokens)
        logits: Tensor = self.head(self.norm(tokens)[:, 0])
        return logits


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        seen = self.first(tokens)
        tokens = tokens + self.attention(seen, seen, seen, need_weights=False)[0]
        mixed: Tensor = tokens + self.mix(self.second(tokens))
        return mixed


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 28, 28)])
def test_a_patch_embedding_with_positions_gives_the_image_away(
    linear: bool, shape: tuple[int, int, int], fashion: Dataset
) -> None:
    batch = batch_of(fashion, 1)
    images = batch.images.repeat(1, shape[0], 1, 1) * torch.linspace(0.5, 1, shape[0]).view(-1, 1, 1)
    model = with_normalization(seeded(lambda: ViT(shape, linear=linear)), (0.3,) * shape[0], (0.4,) * shape[0])
    gradients = share(model, replace(batch, images=images))
    found = ClosedForm()(Evidence(model, gradients, shape, labels=batch.labels))
    assert float(psnr(found.images, images)) > 60
    assert found.ended == "matched"
    noise = {
        name: torch.randn(one.shape, generator=torch.Generator().manual_seed(0)) for name, one in gradients.items()
    }
    assert ClosedForm()(Evidence(model, noise, shape, labels=batch.labels)).ended == "iterations"


def test_without_learned_positions_there_is_no_closed_form(fashion: Dataset) -> None:
    model, batch = seeded(ViT), batch_of(fashion, 1)
    assert isinstance(model, ViT)
    model.positions.requires_grad_(False)
    with pytest.raises(
        GradveilError, match="no closed form: expected a fully connected layer first, got Conv2d 'embed'"
    ):
        ClosedForm()(Evidence(model, share(model, batch), SHAPE, labels=batch.labels))


def layers(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 5, stride=4), norm, nn.GELU(), nn.Flatten(), nn.Linear(8 * 36, 10))


NETS: dict[str, Callable[[], nn.Module]] = {
    "vit": ViT,
    "encoder": lambda: nn.Sequential(
        nn.Unflatten(3, (4, 7)),
        nn.Flatten(1, 3),
        nn.Linear(7, 16),
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        nn.Flatten(),
        nn.Linear(16 * 112, 10),
    ),
    "group norm": lambda: layers(nn.GroupNorm(2, 8)),
    "batch norm": lambda: layers(nn.BatchNorm2d(8)),
    "layer norm": lambda: layers(nn.LayerNorm([8, 6, 6])),
    "instance norm": lambda: layers(nn.InstanceNorm2d(8, affine=True)),
}


@pytest.mark.parametrize("name", NETS)
def test_attention_and_norms_can_be_attacked(name: str, fashion: Dataset, tmp_path: Path) -> None:
    """Alone and together, of one image and of a batch in training mode: the distance falls, the same on both ways."""
    model, attack = seeded(NETS[name]), parse_attack("fast", iterations=5)
    batch = batch_of(fashion, 1)
    evidence = Evidence(model, share(model, batch), SHAPE, labels=batch.labels)
    alone = attack(evidence, seed=3)
    together = run_together([Task(attack, evidence, 3)] * 2)[0]
    assert alone.history[-1] < 0.9 * alone.history[0]
    assert together.history == pytest.approx(alone.history, rel=1e-2)
    scenario = Scenario(
        fashion.name, name, Stage(), attack, batch=2, batch_norm="train", client=FedAvg(lr=0.01, batch=2)
    )
    records = measure(scenario, model, fashion.test, [0, 1], tmp_path)
    assert [record.ended for record in records] == ["iterations"] * 2


def test_a_loss_is_torchs_and_travels_with_the_network(fashion: Dataset) -> None:
    batch, own = batch_of(fashion, 3), seeded(small)
    targets = (torch.rand(3, 10, generator=torch.Generator().manual_seed(1)) < 0.3).float()
    hot = F.one_hot(batch.labels, 10).float()
    cases: list[tuple[str, Tensor, Tensor]] = [
        ("bce", targets, F.binary_cross_entropy_with_logits(own(batch.images), targets)),
        ("bce", batch.labels, F.binary_cross_entropy_with_logits(own(batch.images), hot)),
        ("smoothing=0.2", batch.labels, F.cross_entropy(own(batch.images), batch.labels, label_smoothing=0.2)),
    ]
    for text, labels, loss in cases:
        expected = torch.autograd.grad(loss, list(own.parameters()), retain_graph=True)
        model, given = gv.with_loss(own, text), replace(batch, labels=labels)
        step = FedAvg(lr=0.1, batch=3)
        mean = gv.Aggregate(3)
        for client in (share, step, mean):
            for one, gradient in zip(client(model, given).values(), expected, strict=True):
                torch.testing.assert_close(one, gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("attack", ["idlg", "dlg", "analytic"])
@pytest.mark.parametrize("loss", ["bce", "smoothing=0.2"])
def test_images_come_back_from_gradients_of_other_losses(loss: str, attack: str, fashion: Dataset) -> None:
    """With labels read (idlg), searched for (dlg), and read beside a closed form."""
    own, batch = seeded(small), batch_of(fashion, 1)
    labels = torch.tensor([[0.0, 1, 0, 0, 1, 1, 0, 0, 0, 0]]) if loss == "bce" else batch.labels
    gradients = share(gv.with_loss(own, loss), replace(batch, labels=labels))
    found = gv.invert(own, gradients, attack=attack, image_shape=SHAPE, loss=loss, seed=1)
    assert float(psnr(found.images, batch.images)) > 25
    assert found.labels is not None
    assert found.labels.tolist() == labels.tolist()


def test_labels_of_a_batch_are_read_through_smoothing(fashion: Dataset) -> None:
    batch = batch_of(fashion, 8)
    for loss in ("smoothing=0.3", "smoothing=0.8"):
        model = gv.with_loss(seeded(small), loss)
        found = read_labels(Evidence(model, share(model, batch), SHAPE, images=8))
        assert found.tolist() == batch.labels.sort().values.tolist()
    model = gv.with_loss(seeded(small), "bce")
    with pytest.raises(GradveilError, match="labels of 8 images cannot be read off binary cross entropy; give them"):
        read_labels(Evidence(model, share(model, batch), SHAPE, images=8))
    with pytest.raises(GradveilError, match=r"expected labels from 0 to 1, \(1, 10\), a row per image, got \(1, 9\)"):
        Evidence(model, share(model, batch), SHAPE, labels=torch.zeros(1, 9))


def test_attacks_with_a_loss_share_loops_and_records_name_it(fashion: Dataset, tmp_path: Path) -> None:
    model, attack = gv.with_loss(seeded(small), "bce"), parse_attack("fast", iterations=5)
    batch = batch_of(fashion, 1)
    evidence = Evidence(model, share(model, batch), SHAPE, labels=F.one_hot(batch.labels, 10).float())
    together = run_together([Task(attack, evidence, 3)] * 2)[0]
    assert together.history == pytest.approx(attack(evidence, seed=3).history, rel=1e-2)
    plan = gv.AuditPlan("mlp-16@bce", attacks=(ClosedForm(labels="read"),), images=2)
    few = Dataset("few", fashion.train.take(range(200)), fashion.test.take(range(50)))
    records = gv.audit(plan, few, tmp_path).run.records
    assert {record.scenario.model for record in records} == {"mlp-16@bce"}
    # One image has one label here, and it is read off.
    assert {record.labels_read for record in records if record.scenario.defense == "none"} == {1.0}
    pairs = replace(plan, threats=("fedsgd:images=2",), attacks=("fast:iterations=2",))
    with pytest.raises(GradveilError, match="labels of 2 images cannot be read off binary cross entropy; set labels"):
        gv.audit(pairs, few, tmp_path / "pairs")
    assert not (tmp_path / "pairs").exists()
    plain = replace(plan, model="mlp-16")
    with pytest.raises(GradveilError, match="holds an audit"):
        gv.audit(plain, few, tmp_path)
