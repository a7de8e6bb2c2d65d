"""Audits of objects: somebody's model, data loader, LightningModule, and the first rounds of their Flower app."""

import os
from dataclasses import replace
from pathlib import Path

import lightning as L
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import gradveil as gv
from gradveil.attacks import ClosedForm
from gradveil.auditing.matrix import spread_indices
from gradveil.client import FedAvg
from gradveil.datasets import dataset_from_loader, images_from_loader
from gradveil.errors import GradveilError
from gradveil.federated.flower.setup import NO_TELEMETRY
from gradveil.training.networks import NetworkSource
from gradveil.types import Dataset, to_unit
from lightning_script import QUIET

pytestmark = QUIET
MEAN, STD = (0.2860,), (0.3530,)


def own_net() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.Sigmoid(), nn.Linear(16, 10))


def own_loader(dataset: Dataset, count: int = 200) -> DataLoader[tuple[Tensor, ...]]:
    """As training scripts have them: shuffled, normalised."""
    images = (to_unit(dataset.train.images[:count]) - MEAN[0]) / STD[0]
    return DataLoader(TensorDataset(images, dataset.train.labels[:count]), batch_size=32, shuffle=True)


class Lit(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = own_net()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        return logits

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def test_a_loader_comes_back_as_the_pixels_it_was_made_of(fashion: Dataset) -> None:
    found = images_from_loader(own_loader(fashion), mean=MEAN, std=STD)
    before, after = (
        {(one.numpy().tobytes(), int(label)) for one, label in zip(images, labels, strict=True)}
        for images, labels in ((fashion.train.images[:200], fashion.train.labels[:200]), (found.images, found.labels))
    )
    assert before == after
    torch.rand(3)  # the order does not depend on what was drawn before
    assert torch.equal(images_from_loader(own_loader(fashion), mean=MEAN, std=STD).images, found.images)
    assert len(images_from_loader(own_loader(fashion), mean=MEAN, std=STD, most=40)) == 40
    ones = torch.ones(2, 1, 4, 4)
    for loader, hint in (
        (own_loader(fashion), "give the mean and std that it normalises by"),
        (
            [(ones, torch.rand(2))],
            r"one label from 0 on per image, whole numbers \(2,\), or 0 and 1 \(2, labels\), got torch.float32 \(2,\)",
        ),
        (
            [(ones, torch.full((2, 3), 0.5))],
            r"0 or 1 per image and label \(2, labels\), or whole numbers \(2,\), got \(2, 3\) from 0.5 to 0.5",
        ),
        ([(ones, torch.zeros(2, 3, dtype=torch.complex64))], "got torch.complex64"),
        ([(ones, torch.ones(2, 3)), (ones, torch.ones(2, 4))], r"of one shape in all batches, got \(2, 3\), \(2, 4\)"),
        ([(ones[0], torch.zeros(2))], "expected images"),
        ([{"image": ones}], "expected batches"),
        ([], "at least one batch"),
    ):
        with pytest.raises(GradveilError, match=hint):
            images_from_loader(loader)  # type: ignore[arg-type]


def test_a_model_object_and_its_loader_are_audited(fashion: Dataset, tmp_path: Path) -> None:
    model = own_net()
    study = gv.audit_model(model, own_loader(fashion), tmp_path, mean=MEAN, std=STD, attacks=[ClosedForm()], images=4)
    undefended = [record for record in study.run.records if record.scenario.defense == "none"]
    assert len(undefended) == 4
    assert min(record.published_psnr for record in undefended) > 40
    assert {record.scenario.model for record in undefended} == {"Sequential@normalize=0.286/0.353"}
    assert not model._forward_pre_hooks
    page = gv.write_page(study).read_text()
    assert "<h1>Audit of Sequential on the images of its loader</h1>" in page
    assert "run.json is not there" not in page
    assert {record.scenario.device for record in undefended} == {"cpu"}
    with pytest.raises(GradveilError, match="both mean and std"):
        gv.audit_model(model, own_loader(fashion), tmp_path, mean=MEAN)


def test_images_with_several_labels_are_ranked_among_those_with_the_same(fashion: Dataset, tmp_path: Path) -> None:
    chance = torch.Generator().manual_seed(0)
    targets = (torch.rand(300, 3, generator=chance) < 0.5).float()
    targets[0] = 1
    images = (to_unit(fashion.train.images[:300]) - MEAN[0]) / STD[0]
    loader = DataLoader(TensorDataset(images, targets), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Sigmoid(), nn.Linear(64, 3))
    told = gv.Knowledge(labels="known")
    threats = [gv.Threat("alone", knows=told), gv.Threat("pair", knows=told, clients=gv.Clients(images=2))]
    study = gv.audit_model(
        model, loader, tmp_path, mean=MEAN, std=STD, loss="bce", attacks=[gv.attacks.idlg(iterations=60)],
        threats=threats, images=4,
    )  # fmt: skip
    bare = [one for one in study.run.records if one.scenario.defense == "none"]
    alone = [one for one in bare if one.scenario.batch == 1]
    assert [one.rank.rank for one in alone if one.rank] == [1] * 4
    assert {one.labels_read for one in alone} == {1.0}
    # Small groups last: the audited images have others with the same labels, which an attacker who knows these may know too.
    sets = {tuple(map(int, one)) for one in targets.tolist()}
    assert {one.label for one in alone} <= {
        "+".join(str(at) for at, there in enumerate(one) if there) or "no label" for one in sets
    }
    assert {one.guess for one in alone} == {"the mean of the public images of the class"}
    found = images_from_loader(loader, mean=MEAN, std=STD, classes=("cat", "dog", "person"))
    assert found.classes[0] == "cat+dog+person"
    data = dataset_from_loader(loader, mean=MEAN, std=STD)
    for record in bare:
        assert record.rank is not None
        assert {data.train.classes[int(data.train.labels[one])] for one in record.rank.decoys} == {record.label}
    assert torch.equal(data.train.learned.unique(dim=0), data.test.learned.unique(dim=0))
    short = nn.Sequential(nn.Flatten(), nn.Linear(784, 2))
    pair_read = gv.Threat("pair", knows=gv.Knowledge(labels="read"), clients=gv.Clients(images=2))
    rare = (torch.rand(300, 20, generator=chance) < 0.5).float()
    rarely = DataLoader(TensorDataset(images, rare), batch_size=32)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(784, 20))
    for audited, given, more, said in (
        (model, loader, {}, 'labels of the loader are 0 and 1 per label: say the loss, loss="bce"'),
        (short, loader, {"loss": "bce"}, "as many labels as outputs of the model, 2, got 3"),
        (model, loader, {"loss": "bce", "threats": [pair_read]}, "labels of 2 images cannot be read off"),
        (wide, rarely, {"loss": "bce"}, "others of the same labels to be told from, got 0 of 32"),
    ):
        with pytest.raises(GradveilError, match=said):
            gv.audit_model(audited, given, tmp_path / "no", mean=MEAN, std=STD, **more)  # type: ignore[arg-type]
    assert not (tmp_path / "no").exists()
    with pytest.raises(GradveilError, match="one shape in both loaders"):
        dataset_from_loader(loader, own_loader(fashion), mean=MEAN, std=STD)
    with pytest.raises(GradveilError, match="a whole training here is with one label per image"):
        gv.train(data, "lenet", tmp_path / "training")
    with pytest.raises(GradveilError, match="a collaborative training here"):
        gv.federate(gv.FederatedPlan(data.name, "lenet"), data, tmp_path / "federated")
    with pytest.raises(GradveilError, match="a score here"):
        gv.Scorer(model, model, data.test)


def test_a_network_trained_on_other_labels_is_another(fashion: Dataset, tmp_path: Path) -> None:
    """Also where the images fall into the same groups."""
    images = fashion.train.take(range(40))
    groups = replace(images, labels=torch.arange(40) % 2, classes=("a", "b"), targets=torch.tensor([[1.0, 0], [0, 1]]))
    swapped = replace(groups, targets=torch.tensor([[0.0, 1], [1, 0]]))
    model = gv.with_loss(nn.Sequential(nn.Flatten(), nn.Linear(784, 2)), "bce")
    found = [
        NetworkSource(Dataset("mine", one, one), model, folder=tmp_path).at(gv.Stage("steps", 3)).module.state_dict()
        for one in (groups, swapped, groups)
    ]
    assert torch.equal(found[0]["1.weight"], found[2]["1.weight"])
    assert not torch.equal(found[0]["1.weight"], found[1]["1.weight"])


def test_of_several_labels_the_commonest_come_first_and_those_of_one_image_last(fashion: Dataset) -> None:
    images = fashion.train.take(range(9))
    labels, targets = torch.tensor([0, 1, 1, 1, 1, 1, 2, 2, 2]), torch.tensor([[1.0, 1], [1, 0], [0, 1]])
    several = replace(images, labels=labels, classes=("both", "first", "second"), targets=targets)
    order = [int(labels[one]) for one in spread_indices(several, 9, seed=0)]
    assert order == [1, 2, 1, 2, 1, 2, 1, 1, 0]


def test_without_others_of_its_class_it_is_not_said_that_nothing_leaks(fashion: Dataset, tmp_path: Path) -> None:
    images = to_unit(fashion.train.images[:4])
    loader = DataLoader(TensorDataset(images, torch.arange(4)), batch_size=4)
    study = gv.audit_model(own_net(), loader, tmp_path, public=loader, attacks=[ClosedForm()], images=4)
    assert min(one.published_psnr for one in study.run.records if one.scenario.defense == "none") > 40
    assert study.headline.startswith("Without a defense it cannot be told whether images leak.")


def test_a_model_object_is_audited_under_threats(fashion: Dataset, tmp_path: Path) -> None:
    # The model is attacked as it is: a threat on a trained network does not train it.
    pairs = gv.Threat("pairs", clients=gv.Clients(images=2), stages=("trained",))
    (tmp_path / "alone.toml").write_text("")
    threats = (str(tmp_path / "alone.toml"), pairs)
    study = gv.audit_model(
        own_net(), own_loader(fashion), tmp_path, mean=MEAN, std=STD, attacks=[gv.attacks.fast(iterations=2)], images=2,
        threats=threats, device=gv.device("cpu"),
    )  # fmt: skip
    (steps,) = study.steps.values()
    assert [step.threat for step in steps] == ["alone", "pairs"]
    assert {record.scenario.batch for record in study.run.records} == {1, 2}
    assert {str(record.scenario.stage) for record in study.run.records} == {"weights as given"}
    assert not (tmp_path / "trained").exists()


def test_a_lightning_module_is_audited_after_its_training(fashion: Dataset, tmp_path: Path) -> None:
    module, loader = Lit(), own_loader(fashion)
    trainer = L.Trainer(
        max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_model_summary=False, enable_progress_bar=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, loader)
    study = gv.audit_model(
        module, loader, tmp_path / "audit", mean=MEAN, std=STD, loss="smoothing=0.1", attacks=[ClosedForm()], images=2
    )
    assert module.trainer is trainer
    record = study.run.records[0]
    assert record.scenario.model == "Lit@normalize=0.286/0.353@smoothing=0.1"
    assert min(one.published_psnr for one in study.run.records if one.scenario.defense == "none") > 40


@pytest.mark.parametrize("listed", [False, True])
def test_the_first_rounds_of_a_flower_app_are_audited(
    listed: bool, fashion: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.environ.update(NO_TELEMETRY)
    pytest.importorskip("flwr")
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.supercore.task_identity import TaskIdentity

    from gradveil.federated.flower.recorder import recording_mod

    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower-home"))
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    batch = next(iter(own_loader(fashion, 1)))
    trains = gv.Clients(images=1, epochs=1, rate=0.1)
    app = ClientApp(mods=[recording_mod(tmp_path / "rounds", rounds=2, lr=0.1, clients=trains)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        network = own_net()
        arrays = message.content["arrays"].to_numpy_ndarrays()
        network.load_state_dict(dict(zip(network.state_dict(), map(torch.tensor, arrays), strict=True)))
        F.cross_entropy(network(batch[0]), batch[1]).backward()
        torch.optim.SGD(network.parameters(), lr=0.1).step()
        return Message(RecordDict({"arrays": record(network)}), reply_to=message)

    def record(network: nn.Module) -> ArrayRecord:
        state = network.state_dict()
        return ArrayRecord([one.numpy() for one in state.values()]) if listed else ArrayRecord(state)

    arrays = record(own_net())
    for number in (1, 2, 3):
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({"server-round": number})})
        arrays = app(Message(content, 5, "train"), Context(1, 7, {"partition-id": 0}, RecordDict(), {})).content[
            "arrays"
        ]

    paths = gv.rounds_in(tmp_path / "rounds")
    assert [path.name for path in paths] == [f"round-00000{number}-node-0.safetensors" for number in (1, 2)]
    for path in paths:
        network, update = gv.load_round(path, gv.with_normalization(own_net(), MEAN, STD))
        found = gv.invert(
            network, update, attack=ClosedForm(labels="read"), image_shape=(1, 28, 28), client=FedAvg(lr=0.1)
        )
        assert float(gv.psnr(found.images, to_unit(fashion.train.images[:1]))) > 40
        assert found.labels is not None
        assert found.labels.tolist() == batch[1].tolist()
        study = gv.audit_model(
            gv.load_round(path, own_net())[0], own_loader(fashion), tmp_path / path.stem, mean=MEAN, std=STD,
            attacks=[ClosedForm()], images=2, threats=gv.threats_in(tmp_path / "rounds"),
        )  # fmt: skip
        undefended = [one for one in study.run.records if one.scenario.defense == "none"]
        assert len(undefended) == 2
        assert min(one.published_psnr for one in undefended) > 40  # the network of the round gives them away
    (threat,) = gv.threats_in(tmp_path / "rounds")
    assert (threat.clients, threat.knows.labels) == (replace(trains, batch_norm="train"), "read")
    # Another stage of the same network: the second round began where the first one ended.
    first, second = (gv.load_round(path, own_net())[0][1].weight for path in paths)  # type: ignore[index]
    assert not torch.equal(first, second)
    with pytest.raises(GradveilError, match="does not fit the model"):
        gv.load_round(paths[0], nn.Linear(2, 2))
