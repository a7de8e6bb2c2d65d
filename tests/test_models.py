from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gradveil.errors import GradveilError
from gradveil.models import MODELS, build, parameter_count
from gradveil.models.structure import caching_structure, structure_of
from gradveil.models.weights import ModelCard, load_state, read_card, save_weights
from gradveil.training.networks import load_model


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet20-4", 4_350_884),
        ("convnet", 3_112_420),
        ("convnet9", 3_703_012),
        ("resnet20", 278_324),
        ("lenet", 85_036),
    ],
)
def test_published_parameter_counts(name: str, count: int) -> None:
    assert parameter_count(build(name, (3, 32, 32), 100)) == count


@pytest.mark.parametrize("size", [28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_every_size(name: str, channels: int, size: int) -> None:
    model = build(f"{name}-2", (channels, size, size), 7).eval()
    with torch.no_grad():
        assert model(torch.rand(2, channels, size, size)).shape == (2, 7)


def test_large_images_are_reduced_first() -> None:
    with torch.no_grad():
        assert build("resnet18-4", (3, 224, 224), 5).eval()(torch.rand(1, 3, 224, 224)).shape == (1, 5)


def test_the_seed_decides_the_weights_and_the_global_stream_is_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    states = [build("lenet", (1, 28, 28), 10, seed=seed).state_dict() for seed in (0, 0, 1)]
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["net.classify.weight"], states[2]["net.classify.weight"])


def test_normalisation_is_the_first_layer() -> None:
    model = build("lenet", (1, 28, 28), 10, mean=[0.3], std=[0.2]).eval()
    plain = build("lenet", (1, 28, 28), 10, mean=[0.0], std=[1.0]).eval()
    images = torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(model(images), plain((images - 0.3) / 0.2))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet21", "resnet20"),
        ("convnet-0", "width"),
        ("convnet-x", "known"),
        ("no.such:thing", "cannot import"),
        ("math:nothing", "no function"),
        ("math:sqrt", "cannot be built"),
    ],
)
def test_bad_names_say_what_would_do(name: str, hint: str) -> None:
    with pytest.raises(GradveilError, match=hint) as error:
        build(name, (1, 28, 28), 10)
    assert "\n" not in str(error.value)


def test_own_model_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n"
        "def build(image_shape, classes):\n"
        "    c, h, w = image_shape\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    model = build("my_nets:build", (3, 8, 8), 4)
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 4)


ODD_NETS = """
from torch import nn
class Linear(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(192, 4))
class Sized(nn.Module):
    def __init__(self, classes=4, norm=nn.BatchNorm2d):
        super().__init__()
        self.norm = norm(8)
class Three(nn.Module):
    def __init__(self, width, depth, heads):
        super().__init__()
class Pair(Linear):
    def forward(self, images):
        return super().forward(images), images
class Flat(Linear):
    def forward(self, images):
        return super().forward(images).flatten()
class Grey(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Sized", r"cannot be built .* expected a function that is called as function\(image_shape, classes\)"),
        ("Three", r"cannot be built .* or one or a class that takes fewer than two arguments and needs none"),
        ("Pair", "as its only output, got a tuple"),
        ("Flat", r"expected logits \(1, classes\) for one image, got \(4,\)"),
        ("Grey", r"does not take images \(3, 8, 8\): .*1 channels"),
    ],
)
def test_an_own_model_that_does_not_fit_is_refused_in_one_line(
    name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd_nets.py").write_text(ODD_NETS)
    monkeypatch.chdir(tmp_path)
    assert build("odd_nets:Linear", (3, 8, 8), 4).training  # a look at its output leaves the mode as it was
    with pytest.raises(GradveilError, match=hint) as error:
        build(f"odd_nets:{name}", (3, 8, 8), 4)
    assert "\n" not in str(error.value)


def test_one_class_has_no_cross_entropy() -> None:
    with pytest.raises(GradveilError, match="2 classes or more, got 1"):
        build("lenet", (3, 32, 32), 1)
    build("lenet@bce", (3, 32, 32), 1)


CARD = ModelCard("lenet", (1, 28, 28), tuple("abc"), "fashion-mnist", 3, 2.0, 0.5, "none", "0.1.0")


def test_weights_come_back_with_their_card(tmp_path: Path) -> None:
    model = build("lenet", (1, 28, 28), 3, seed=5, mean=[0.3], std=[0.4])
    save_weights(tmp_path / "w.safetensors", model, CARD)
    loaded, card = load_model(tmp_path / "w.safetensors")
    assert card == CARD
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


def test_foreign_and_damaged_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    model = build("lenet", (1, 28, 28), 3)
    save_weights(path, model, CARD)
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-10], b"\xff" * 1000):
        path.write_bytes(damaged)
        with pytest.raises(GradveilError, match="safetensors"):
            load_model(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(GradveilError, match="no card"):
        read_card(path)
    with pytest.raises(GradveilError, match="does not fit"):
        load_state(model, path)
    state = model.state_dict()
    save_file(state | {"net.classify.bias": torch.full((3,), torch.nan)}, path)
    with pytest.raises(GradveilError, match="NaN"):
        load_state(model, path)
    with pytest.raises(GradveilError, match="no such"):
        load_model(tmp_path / "none")


def test_a_card_cannot_make_us_run_code(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    card = ModelCard("os:system", (1, 28, 28), tuple("abc"), "x", 0, 0.0, None, "none", "0.1.0")
    save_weights(path, build("lenet", (1, 28, 28), 3), card)
    with pytest.raises(GradveilError, match="pass --model os:system"):
        load_model(path)


def test_a_network_is_looked_through_once_where_it_does_not_change() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    with caching_structure(model):
        first = structure_of(model)
        with caching_structure(model):
            assert structure_of(model) is first
        assert structure_of(model) is first
        assert first.of_kind(nn.Linear) == (model[0],)
        assert structure_of(model[0]) is not first
    model.append(nn.Linear(3, 1))
    now = structure_of(model)
    assert now is not first
    assert list(now.parameters) == [name for name, _ in model.named_parameters()]
    assert list(now.buffers) == [name for name, _ in model.named_buffers()]
    assert now.of_kind(nn.Linear) == (model[0], model[2])


@pytest.mark.parametrize("name", ["resnet152-8192", "mlp-8192"])
def test_models_that_no_machine_holds_are_refused_before_they_are_made(name: str) -> None:
    with pytest.raises(GradveilError, match=rf"model '{name}' takes .* GiB for images \(3, 4096, 4096\) in 10 classes"):
        build(name, (3, 4096, 4096), 10)


@pytest.mark.parametrize("name", ["..nets:Net", ".nets:Net"])
def test_relative_names_of_own_models_are_refused(name: str) -> None:
    with pytest.raises(GradveilError, match=r"expected package\.module:function"):
        build(name, (1, 28, 28), 10)
