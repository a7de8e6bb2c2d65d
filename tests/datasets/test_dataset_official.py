import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from layouts import MEDICAL, TINY_WNIDS, balanced, class_folders, colour, make_tar, make_zip, save, write_idx
from PIL import Image

from gradveil.datasets import load
from gradveil.errors import GradveilError
from gradveil.types import Dataset, ImageSet


@pytest.fixture
def small(fashion, shrink) -> Dataset:
    """What the idx files of these tests hold, and what the catalogue then expects of Fashion-MNIST."""
    shrink("fashion-mnist", train=100, test=50)
    return Dataset("small", balanced(fashion.train, 10), balanced(fashion.test, 5))


def same(got: ImageSet, expected: ImageSet) -> bool:
    return torch.equal(got.images, expected.images) and torch.equal(got.labels, expected.labels)


@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
@pytest.mark.parametrize("where", [".", "fashion-mnist", "FashionMNIST/raw", "fashion-mnist/FashionMNIST/raw"])
def test_fashion_mnist_is_found_in_common_layouts(tmp_path, small, where, packed):
    write_idx(tmp_path / where, small.train, small.test, packed=packed)
    got = load("fashion-mnist", data_dir=tmp_path, download=False)
    assert same(got.train, small.train)
    assert same(got.test, small.test)


def test_the_environment_names_the_data_folder(tmp_path, small, monkeypatch):
    write_idx(tmp_path, small.train, small.test, packed=True)
    monkeypatch.setenv("GRADVEIL_DATA", str(tmp_path))
    assert len(load("fashion-mnist", download=False).train) == 100


def test_mnist_in_place_of_fashion_mnist_is_noticed(tmp_path, small):
    labels = small.train.labels.clone()
    labels[0] = (labels[0] + 1) % 10
    write_idx(tmp_path, ImageSet(small.train.images, labels, small.train.classes), small.test, packed=True)
    with pytest.raises(GradveilError, match="another dataset with the same file names"):
        load("fashion-mnist", data_dir=tmp_path)


def test_idx_files_of_another_count_or_label_name_the_file(tmp_path, small):
    write_idx(tmp_path, small.train, small.test.take(range(49)), packed=False)
    with pytest.raises(GradveilError, match=r"t10k-images-idx3-ubyte.*should hold 50 images.*got 49"):
        load("fashion-mnist", data_dir=tmp_path)
    write_idx(tmp_path, small.train, small.test, packed=False)
    content = bytearray((tmp_path / "train-labels-idx1-ubyte").read_bytes())
    content[-1] = 77
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(GradveilError, match=r"train-labels-idx1-ubyte holds label 77"):
        load("fashion-mnist", data_dir=tmp_path)


def test_a_corrupt_idx_archive_names_the_file(tmp_path, small):
    write_idx(tmp_path, small.train, small.test, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(GradveilError, match=r"train-images-idx3-ubyte\.gz is corrupt"):
        load("fashion-mnist", data_dir=tmp_path)


@pytest.fixture
def cifar100(tmp_path, fashion, shrink) -> tuple[Path, torch.Tensor]:
    """200 + 100 coloured images in the binary layout; coarse labels are all 19."""
    shrink("cifar100", train=200, test=100)
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    images = colour(fashion.train, 300, 32)
    rows = torch.cat(
        [torch.full((300, 1), 19), torch.arange(300)[:, None] % 100, images.flatten(1)], dim=1
    ).to(torch.uint8).numpy()  # fmt: skip
    (folder / "train.bin").write_bytes(rows[:200].tobytes())
    (folder / "test.bin").write_bytes(rows[200:].tobytes())
    (folder / "fine_label_names.txt").write_text("".join(f"fine{number}\n" for number in range(100)))
    (folder / "coarse_label_names.txt").write_text("".join(f"coarse{number}\n" for number in range(20)))
    return tmp_path, images


@pytest.mark.parametrize("kind", ["folder", "inside", "tar.gz", "tar"])
def test_cifar100_has_its_fine_labels(cifar100, kind):
    place, images = cifar100
    if kind.startswith("tar"):
        make_tar(place, place / f"cifar-100-binary.{kind}", "w:gz" if kind == "tar.gz" else "w")
        shutil.rmtree(place / "cifar-100-binary")
    got = load("cifar100", data_dir=place / "cifar-100-binary" if kind == "inside" else place, download=False)
    assert torch.equal(torch.cat([got.train.images, got.test.images]), images)
    assert got.train.labels.tolist() == [*range(100)] * 2
    assert got.test.classes[7] == "fine7"


def test_damaged_cifar_names_the_file(cifar100):
    place, _ = cifar100
    folder = place / "cifar-100-binary"
    whole = (folder / "test.bin").read_bytes()
    for content, message in (
        (whole[:-1], r"test\.bin should hold whole records of 3,074 bytes"),
        (whole[:-3074], r"test\.bin should hold 100 images"),
        (whole[:1] + b"\xc8" + whole[2:], r"test\.bin holds label 200"),
    ):
        (folder / "test.bin").write_bytes(content)
        with pytest.raises(GradveilError, match=message):
            load("cifar100", data_dir=place)
    (folder / "test.bin").unlink()
    with pytest.raises(GradveilError, match=r"cannot read .*test\.bin: No such file"):
        load("cifar100", data_dir=place)
    (folder / "fine_label_names.txt").write_text("one\ntwo\n")
    with pytest.raises(GradveilError, match=r"fine_label_names\.txt should name 100 classes, got 2"):
        load("cifar100", data_dir=place)


def test_cifar10_is_real_and_found_in_three_ways(data, tmp_path):
    got = load("cifar10", data_dir=data, download=False)
    assert got.train.images.shape == (50_000, 3, 32, 32)
    assert got.test.images.shape == (10_000, 3, 32, 32)
    assert got.train.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]  # frog, truck, truck, deer, ...
    assert got.train.classes[6] == "frog"
    # The first pixel of the first image, a frog, is known from countless tutorials.
    assert got.train.images[0, :, 0, 0].tolist() == [59, 62, 63]
    inside = load("cifar10[:10%]", data_dir=data / "cifar-10-batches-bin", download=False)
    assert torch.bincount(inside.train.labels).tolist() == [500] * 10
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-batches-bin").symlink_to(data / "cifar-10-batches-bin")
    assert torch.equal(load("cifar10", data_dir=tmp_path).test.images, got.test.images)


def tiny_imagenet(root: Path, fashion: Dataset) -> torch.Tensor:
    """The official layout: two training and two validation images of three classes, one of them grey."""
    images = colour(fashion.train, 12, 64)
    for number, wnid in enumerate(TINY_WNIDS):
        for index in range(2):
            save(root / f"train/{wnid}/images/{wnid}_{index}.JPEG", images[number * 2 + index], quality=95)
        (root / f"train/{wnid}/{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t63\t63\n")
    lines = []
    for index in range(6):
        save(root / f"val/images/val_{index}.JPEG", images[6 + index][: 1 if index == 0 else 3], quality=95)
        lines.append(f"val_{index}.JPEG\t{TINY_WNIDS[index % 3]}\t0\t0\t63\t63\n")
    (root / "val/val_annotations.txt").write_text("".join(lines))
    save(root / "test/images/test_0.JPEG", images[0])
    return images


@pytest.mark.parametrize("kind", ["folder", "inside", "zip"])
def test_tiny_imagenet_in_its_official_layout(tmp_path, fashion, kind):
    root = tmp_path / "made" / "tiny-imagenet-200"
    tiny_imagenet(root, fashion)
    if kind == "zip":
        make_zip(tmp_path / "made", tmp_path / "tiny-imagenet-200.zip")
    place = {"folder": tmp_path / "made", "inside": root, "zip": tmp_path}[kind]
    got = load("tiny-imagenet", data_dir=place, download=False)
    assert got.train.classes == tuple(TINY_WNIDS)
    assert got.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert got.test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    expected = np.asarray(Image.open(root / f"train/{TINY_WNIDS[1]}/images/{TINY_WNIDS[1]}_0.JPEG")).transpose(2, 0, 1)
    assert np.array_equal(got.train.images[1].numpy(), expected)
    grey = np.asarray(Image.open(root / "val/images/val_0.JPEG"))
    assert np.array_equal(got.test.images[0].numpy(), np.stack([grey] * 3))


def test_tiny_imagenet_rearranged_into_class_folders_in_a_tar(tmp_path, fashion):
    images = colour(fashion.train, 9, 64)
    class_folders(tmp_path / "made/train", images[:6], TINY_WNIDS, 2, ".JPEG")
    class_folders(tmp_path / "made/val", images[6:], TINY_WNIDS, 1, ".JPEG")
    make_tar(tmp_path / "made", tmp_path / "tiny-imagenet-tenth.tar")
    got = load("tiny-imagenet@32[:3]", data_dir=tmp_path, download=False)
    assert got.train.images.shape == got.test.images.shape == (3, 3, 32, 32)
    assert got.train.labels.tolist() == got.test.labels.tolist() == [0, 1, 2]


def test_bad_annotations_name_file_and_line(tmp_path, fashion):
    tiny_imagenet(tmp_path, fashion)
    listing = tmp_path / "val/val_annotations.txt"
    listing.write_text(listing.read_text() + "val_9.JPEG\tn99999999\t0\t0\t1\t1\n")
    with pytest.raises(GradveilError, match=r"val_annotations\.txt line 7: .*n99999999"):
        load("tiny-imagenet", data_dir=tmp_path)
    listing.write_text("")
    with pytest.raises(GradveilError, match=r"val_annotations\.txt is empty"):
        load("tiny-imagenet", data_dir=tmp_path)


def test_medical_mnist_is_grey_and_split_if_need_be(tmp_path, fashion):
    images = fashion.train.images
    class_folders(tmp_path / "plain/medical-mnist", images, MEDICAL, 5, ".jpeg")
    plain = load("medical-mnist", data_dir=tmp_path / "plain")
    assert plain.train.images.shape == (24, 1, 28, 28)
    assert plain.test.labels.tolist() == [0, 1, 2, 3, 4, 5]
    class_folders(tmp_path / "made/train", images, MEDICAL, 2, ".jpeg")
    class_folders(tmp_path / "made/val", images[100:], MEDICAL, 1, ".jpeg")
    make_tar(tmp_path / "made", tmp_path / "medical-mnist-tenth.tar")
    split = load("medical-mnist", data_dir=tmp_path)
    assert len(split.train) == 12
    assert split.test.classes == tuple(MEDICAL)


def test_medical_mnist_says_how_to_place_it(tmp_path):
    with pytest.raises(GradveilError, match=r"no official address.*AbdomenCT.* into .*medical-mnist"):
        load("medical-mnist", data_dir=tmp_path)


def test_an_archive_of_something_else_is_named(tmp_path, fashion):
    save(tmp_path / "made/cat.png", fashion.train.images[0])
    make_tar(tmp_path / "made", tmp_path / "cifar-10-binary.tar.gz", "w:gz")
    with pytest.raises(GradveilError, match=r"cifar-10-binary\.tar\.gz does not hold cifar10: no data_batch_1\.bin"):
        load("cifar10", data_dir=tmp_path)


def test_a_file_as_data_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(GradveilError, match="is a file"):
        load("cifar10", data_dir=tmp_path / "file")
