import contextlib
import errno
import io
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layouts import class_folders, colour, png, save
from PIL import Image

from gradveil.datasets import load
from gradveil.datasets.encoded import decode
from gradveil.errors import GradveilError


def test_plain_class_folders_are_split_by_the_seed(tmp_path, fashion):
    class_folders(tmp_path, fashion.train.images, ["shoe", "bag", "coat"], 10)
    first, again, other = (load(f"folder:{tmp_path}", seed=seed) for seed in (0, 0, 1))
    assert first.train.classes == ("bag", "coat", "shoe")
    assert torch.bincount(first.train.labels).tolist() == [8] * 3
    assert torch.bincount(first.test.labels).tolist() == [2] * 3
    assert torch.equal(first.test.images, again.test.images)
    assert not torch.equal(first.test.images, other.test.images)
    every = {image.numpy().tobytes() for part in (first.train, first.test) for image in part.images}
    assert every == {image.numpy().tobytes() for image in fashion.train.images[:30]}


@pytest.mark.parametrize(
    ("train_folder", "test_folder"), [("train", "test"), ("train", "val"), ("Train", "Validation")]
)
def test_split_folders_are_read_class_by_class_in_turn(tmp_path, fashion, train_folder, test_folder):
    images = fashion.train.images
    class_folders(tmp_path / train_folder, images, ["a", "b"], 3)
    class_folders(tmp_path / test_folder, images[50:], ["a", "b"], 2)
    (tmp_path / train_folder / "a/notes.txt").write_text("not an image")
    (tmp_path / train_folder / "a/._000.png").write_bytes(b"dropping")
    (tmp_path / train_folder / ".cache").mkdir()
    got = load(f"folder:{tmp_path}")
    assert torch.equal(got.train.images, images[[0, 3, 1, 4, 2, 5]])
    assert torch.equal(got.test.images, images[[50, 52, 51, 53]])
    assert got.test.labels.tolist() == [0, 1, 0, 1]


def test_many_images_keep_their_order_through_the_threads(tmp_path, fashion):
    class_folders(tmp_path / "train", fashion.train.images, ["a", "b"], 400)
    class_folders(tmp_path / "test", fashion.test.images, ["a", "b"], 2)
    seen: list[tuple[str, int]] = []

    class Recorder:
        def __call__(self, title, total, unit):
            seen.append((unit, total))
            return self

        def __enter__(self):
            return lambda units: seen.append(("done", units))

        def __exit__(self, *error):
            return None

    got = load(f"folder:{tmp_path}", progress=Recorder())
    assert torch.equal(got.train.images[0::2], fashion.train.images[:400])
    assert torch.equal(got.train.images[1::2], fashion.train.images[400:800])
    assert seen[0] == ("images", 804)
    assert sum(units for kind, units in seen if kind == "done") == 804


def test_one_coloured_image_makes_all_coloured(tmp_path, fashion):
    class_folders(tmp_path / "train", fashion.train.images, ["a", "b"], 2)
    class_folders(tmp_path / "test", fashion.test.images, ["a", "b"], 1)
    save(tmp_path / "test/b/000.png", colour(fashion.test, 1, 28)[0])
    got = load(f"folder:{tmp_path}")
    assert torch.equal(got.train.images, fashion.train.images[[0, 2, 1, 3]].repeat(1, 3, 1, 1))
    assert torch.equal(got.test.images[1], colour(fashion.test, 1, 28)[0])


def test_mixed_sizes_name_the_odd_file_and_both_sizes(tmp_path, fashion):
    class_folders(tmp_path, fashion.train.images, ["a", "b"], 5)
    class_folders(tmp_path, colour(fashion.train, 5, 40), ["b"], 5)
    with pytest.raises(GradveilError, match=r"b/00\d\.png is 40x40, .*a/00\d\.png is 28x28; NAME@SIZE resizes"):
        load(f"folder:{tmp_path}")
    got = load(f"folder:{tmp_path}@16")
    assert got.train.image_shape == (3, 16, 16)
    expected = Image.open(tmp_path / "a/000.png").resize((16, 16), Image.Resampling.BILINEAR)
    every = torch.cat([got.train.images, got.test.images])
    assert any(np.array_equal(image[0].numpy(), np.asarray(expected)) for image in every)


def test_folder_errors_name_the_folder(tmp_path, fashion):
    with pytest.raises(GradveilError, match=r"nowhere is not a folder"):
        load(f"folder:{tmp_path}/nowhere")
    with pytest.raises(GradveilError, match="has no class folders"):
        load(f"folder:{tmp_path}")
    class_folders(tmp_path / "train", fashion.train.images, ["a"], 2)
    with pytest.raises(GradveilError, match=r"train has no test part beside it; add test or val"):
        load(f"folder:{tmp_path}")
    (tmp_path / "train/empty").mkdir()
    (tmp_path / "val").mkdir()
    with pytest.raises(GradveilError, match=r"class folder .*train/empty has no images \(\.jpg"):
        load(f"folder:{tmp_path}")
    (tmp_path / "train/empty").rmdir()
    class_folders(tmp_path / "val", fashion.train.images, ["a", "z"], 1)
    with pytest.raises(GradveilError, match=r"val/z has no training images"):
        load(f"folder:{tmp_path}")


def test_an_unreadable_folder_is_named(tmp_path, fashion, monkeypatch):
    class_folders(tmp_path, fashion.train.images, ["a", "b"], 2)
    scandir = os.scandir

    def refused(folder):
        # What the system says when permissions are missing; root, as which some machines test, is never told so.
        if Path(folder).name == "b":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(GradveilError, match=r"cannot read folder .*b: Permission denied"):
        load(f"folder:{tmp_path}")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".gif", ".webp", ".tiff"])
def test_truncated_and_false_images_are_named(tmp_path, fashion, suffix):
    class_folders(tmp_path, colour(fashion.train, 4, 64), ["a", "b"], 2, suffix)
    path = tmp_path / f"b/001{suffix}"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"hello", b""):
        path.write_bytes(content)
        with pytest.raises(GradveilError, match=rf"b/001\{suffix}: not a readable image"):
            load(f"folder:{tmp_path}")


def bomb(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    header = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 0, 0, 0, 0])
    data = chunk(b"IDAT", zlib.compress(b""))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [12_000, 60_000], ids=["where Pillow warns", "where Pillow refuses"])
def test_images_of_too_many_pixels_are_refused(tmp_path, fashion, side):
    class_folders(tmp_path, fashion.train.images, ["a", "b"], 2)
    (tmp_path / "b/001.png").write_bytes(bomb(side, side))
    with pytest.raises(GradveilError, match=r"b/001\.png: not a readable image: .* pixels"):
        load(f"folder:{tmp_path}")


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow warns of damaged metadata and reads on
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(["PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM"]), st.data())
def test_damaged_bytes_decode_or_are_a_clear_error(fashion, kind, data):
    buffer = io.BytesIO()
    Image.fromarray(fashion.train.images[0, 0].numpy()).save(buffer, kind)
    content = bytearray(buffer.getvalue())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=20)):
        content[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(GradveilError):  # any other exception fails
        assert decode(bytes(content), "some/file").dtype == np.uint8


def test_modes_become_bytes_of_one_or_three_channels(fashion):
    grey = fashion.train.images[0, 0].numpy()
    picture = Image.fromarray(grey)

    def through(image: Image.Image) -> np.ndarray:
        buffer = io.BytesIO()
        image.save(buffer, "TIFF" if image.mode in ("CMYK", "F") else "PNG")
        return decode(buffer.getvalue(), "file")

    assert np.array_equal(through(Image.fromarray(grey.astype(np.uint16) * 256 + 7)), grey[None])
    assert np.array_equal(through(picture.convert("LA")), grey[None])
    assert np.array_equal(through(picture.convert("RGBA")), np.stack([grey] * 3))
    assert through(picture.convert("RGB").convert("P")).shape == (3, 28, 28)
    assert through(picture.convert("RGB").convert("CMYK")).shape == (3, 28, 28)
    assert set(np.unique(through(picture.convert("1")))) == {0, 255}
    with pytest.raises(GradveilError, match="file: expected 8 bits per channel, got 32-bit pixels"):
        through(picture.convert("F"))
    see_through = picture.convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE)
    see_through.info["transparency"] = bytes(range(256))
    assert through(see_through).shape == (3, 28, 28)
    assert np.array_equal(decode(png(fashion.train.images[0]), "file"), grey[None])


def test_formats_that_start_other_programs_are_not_opened(fashion):
    buffer = io.BytesIO()
    Image.fromarray(fashion.train.images[0, 0].numpy()).save(buffer, "EPS")
    with pytest.raises(GradveilError, match="file: not a readable image: expected JPEG, PNG"):
        decode(buffer.getvalue(), "file")
