import sys

import pytest
import torch
from layouts import balanced, colour, png

from gradveil.datasets import load
from gradveil.datasets.hub import _Rows
from gradveil.errors import GradveilError

datasets = pytest.importorskip("datasets", reason="the extra gradveil[hf] is not installed")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def write(folder, split, images, **columns):
    """One parquet file; columns are (feature, values)."""
    folder.mkdir(exist_ok=True)
    features = {"image": datasets.Image(), **{name: feature for name, (feature, _) in columns.items()}}
    values = {"image": [{"bytes": png(image), "path": None} for image in images]}
    values |= {name: list(content) for name, (_, content) in columns.items()}
    rows = datasets.Dataset.from_dict(values, features=datasets.Features(features))
    rows.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))


def test_a_local_folder_of_parquet_files(tmp_path, fashion):
    train, test = balanced(fashion.train, 4), balanced(fashion.test, 2)
    feature = datasets.ClassLabel(names=list(train.classes))
    write(tmp_path / "data", "train", train.images, label=(feature, train.labels.tolist()))
    write(tmp_path / "data", "test", test.images, label=(feature, test.labels.tolist()))
    got = load(f"hf:{tmp_path}/data")
    assert got.train.classes == train.classes
    assert torch.equal(got.train.images, train.images)
    assert torch.equal(got.train.labels, train.labels)
    assert torch.equal(got.test.images, test.images)
    part = load(f"hf:{tmp_path}/data@32[:50%]")
    assert part.train.images.shape == (20, 1, 32, 32)
    assert torch.bincount(part.train.labels).tolist() == [2] * 10


def test_fine_labels_win_and_hidden_test_labels_give_way_to_validation(tmp_path, fashion):
    images = colour(fashion.train, 6, 32)
    coarse, fine = datasets.ClassLabel(names=["x", "y"]), datasets.ClassLabel(names=["p", "q", "r"])
    write(tmp_path / "d", "train", images, coarse=(coarse, [0, 1] * 3), fine=(fine, [0, 1, 2] * 2))
    write(tmp_path / "d", "test", images[:1], coarse=(coarse, [-1]), fine=(fine, [-1]))
    write(tmp_path / "d", "validation", images[:3], coarse=(coarse, [0, 0, 0]), fine=(fine, [2, 1, 0]))
    got = load(f"hf:{tmp_path}/d")
    assert got.train.classes == ("p", "q", "r")
    assert got.test.labels.tolist() == [2, 1, 0]
    assert torch.equal(got.train.images, images)


def test_names_as_labels_and_no_test_part(tmp_path, fashion):
    words = ["shoe", "bag"] * 5
    write(tmp_path / "d", "train", fashion.train.images[:10], label=(datasets.Value("string"), words))
    got = load(f"hf:{tmp_path}/d")
    assert got.train.classes == ("bag", "shoe")
    assert torch.bincount(got.train.labels).tolist() == [4, 4]
    assert torch.bincount(got.test.labels).tolist() == [1, 1]


def test_numbers_as_labels(tmp_path, fashion):
    write(tmp_path / "d", "train", fashion.train.images[:6], label=(datasets.Value("int64"), [0, 1, 2] * 2))
    assert load(f"hf:{tmp_path}/d").train.classes == ("0", "1", "2")


def test_hub_errors_say_what_is_missing(tmp_path, fashion):
    images = fashion.train.images[:4]
    write(tmp_path / "a", "train", images, price=(datasets.Value("float32"), [1.0] * 4))
    with pytest.raises(GradveilError, match=r"no column of classes and none called label, got image, price"):
        load(f"hf:{tmp_path}/a")
    write(tmp_path / "b", "test", images, label=(datasets.Value("int64"), [0] * 4))
    with pytest.raises(GradveilError, match="no split called train, got test"):
        load(f"hf:{tmp_path}/b")
    write(tmp_path / "c", "train", images, label=(datasets.Value("float32"), [0.5] * 4))
    with pytest.raises(GradveilError, match="column label must hold class numbers or names"):
        load(f"hf:{tmp_path}/c")
    feature = datasets.ClassLabel(names=["p", "q"])
    write(tmp_path / "d", "train", images, label=(feature, [0, 1, -1, 0]))
    with pytest.raises(GradveilError, match="train row 2 has no label among the 2 classes"):
        load(f"hf:{tmp_path}/d")
    rows = datasets.Dataset.from_dict({"text": ["a"], "label": [0]})
    (tmp_path / "e").mkdir()
    rows.to_parquet(str(tmp_path / "e/train-00000-of-00001.parquet"))
    with pytest.raises(GradveilError, match="no image column, got text, label"):
        load(f"hf:{tmp_path}/e")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GradveilError, match="cannot load hf:") as caught:
        load(f"hf:{tmp_path}/empty")
    assert "\n" not in str(caught.value)


def test_a_damaged_row_is_named(tmp_path, fashion):
    values = {"image": [{"bytes": png(fashion.train.images[0])[:60], "path": None}] * 4, "label": [0, 1] * 2}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["p", "q"])})
    (tmp_path / "d").mkdir()
    datasets.Dataset.from_dict(values, features=features).to_parquet(str(tmp_path / "d/train-0.parquet"))
    with pytest.raises(GradveilError, match=r"hf:.*/d train row \d: not a readable image"):
        load(f"hf:{tmp_path}/d")


@pytest.mark.parametrize(("path", "why"), [("nowhere.png", "No such file"), ("/dev/zero", "a device")])
def test_a_row_whose_file_cannot_be_read_is_named(path, why):
    rows = _Rows("hf:d train", [{"image": {"bytes": None, "path": path}}], "image")
    with pytest.raises(GradveilError, match=rf"hf:d train row 0: {path}: .*{why}"):
        rows.read("0")


def test_a_label_of_billions_is_refused(tmp_path, fashion):
    write(tmp_path / "d", "train", fashion.train.images[:2], label=(datasets.Value("int64"), [0, 10**12]))
    with pytest.raises(GradveilError, match=r"hf:.*: expected labels 0 to 99999, got 1000000000000"):
        load(f"hf:{tmp_path}/d")


def test_without_the_extra_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(GradveilError, match=r"pip install 'gradveil\[hf\]'"):
        load("hf:cifar10")
