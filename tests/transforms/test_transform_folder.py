"""Whole folders: same tree, resumable, originals untouched, the same for any number of workers."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from gradveil.errors import GradveilError
from gradveil.randomness import derive_seed
from gradveil.transforms import Policy, apply_folder
from gradveil.transforms.folder import MANIFEST

POLICY = Policy.parse("3-1-7+43-18-18")


@pytest.fixture
def source(tmp_path: Path, colour: Tensor) -> Path:
    folder = tmp_path / "photos"
    for number, image in enumerate(colour[:70]):
        place = folder / ("cats" if number % 2 else "dogs/small") / f"{number:03}.{'jpg' if number % 3 == 0 else 'png'}"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy().copy()).save(place)
    (folder / "notes.txt").write_text("not an image")
    return folder


def contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_image_in_its_place(source: Path, tmp_path: Path) -> None:
    before = contents(source)
    result = apply_folder(POLICY, source, tmp_path / "out", seed=6)
    assert (result.written, result.skipped) == (70, 0)
    assert contents(source) == before
    wanted = {name if name.endswith(".png") else f"{name}.png" for name in before if not name.endswith(".txt")}
    assert set(contents(tmp_path / "out")) == wanted | {MANIFEST}
    name = "cats/003.jpg"
    pixels = torch.from_numpy(np.array(read(source / name))).permute(2, 0, 1)
    index = torch.tensor([derive_seed(0, "file", name)])
    done = np.array(read(tmp_path / "out" / f"{name}.png"))
    assert torch.equal(torch.from_numpy(done).permute(2, 0, 1), POLICY(pixels[None], seed=6, indices=index)[0])


def test_workers_and_interruptions_cannot_be_seen(source: Path, tmp_path: Path) -> None:
    apply_folder(POLICY, source, tmp_path / "one")
    apply_folder(POLICY, source, tmp_path / "two", workers=2)
    whole = contents(tmp_path / "one")
    assert contents(tmp_path / "two") == whole
    for name in list(whole)[5:30]:
        if name != MANIFEST:
            (tmp_path / "one" / name).unlink()
    result = apply_folder(POLICY, source, tmp_path / "one")
    assert 20 <= result.written < 30
    assert contents(tmp_path / "one") == whole


def test_finished_images_are_not_redone(source: Path, tmp_path: Path) -> None:
    apply_folder(POLICY, source, tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.png")}
    assert apply_folder(POLICY, source, tmp_path / "out").skipped == 70
    assert {path: path.stat().st_mtime_ns for path in times} == times


def whole_pictures(folder: Path) -> list[Path]:
    """Those that are not parts, which are hidden."""
    return [path for path in folder.rglob("*.png") if not path.name.startswith(".")]


def test_killed_run_leaves_whole_files_only(source: Path, tmp_path: Path) -> None:
    for number in range(400):
        Image.new("RGB", (200, 200), (number % 256, 9, 9)).save(source / f"more-{number}.png")
    program = (
        "import sys; from gradveil.transforms import Policy, apply_folder; "
        "apply_folder(Policy.parse('3-1-7+43-18-18'), sys.argv[1], sys.argv[2])"
    )
    run = subprocess.Popen([sys.executable, "-c", program, str(source), str(tmp_path / "out")])
    try:
        deadline = time.monotonic() + 600
        while len(whole_pictures(tmp_path / "out")) < 20 and time.monotonic() < deadline:
            time.sleep(0.005)
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    finished = whole_pictures(tmp_path / "out")
    assert 20 <= len(finished) < 470
    for path in finished:
        read(path)
    apply_folder(POLICY, source, tmp_path / "out")
    apply_folder(POLICY, source, tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_another_policy_or_seed_is_refused(source: Path, tmp_path: Path) -> None:
    apply_folder(POLICY, source, tmp_path / "out", seed=1)
    for policy, seed in ((Policy.parse("3"), 1), (POLICY, 2)):
        assert "made with policy translate_x:9-contrast:6" in refusal(policy, source, tmp_path / "out", seed)


def test_places_that_could_do_harm_are_refused(source: Path, tmp_path: Path) -> None:
    before = contents(tmp_path)
    assert "outside the source" in refusal(POLICY, source, source)
    assert "outside the source" in refusal(POLICY, source, source / "cats" / "out")
    assert "outside the source" in refusal(POLICY, source, tmp_path)
    (tmp_path / "link").symlink_to(source)
    assert "outside the source" in refusal(POLICY, source, tmp_path / "link" / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").write_text("mine")
    assert "not empty" in refusal(POLICY, source, tmp_path / "full")
    assert "not a folder" in refusal(POLICY, source, tmp_path / "full" / "diary.txt")
    assert "no such folder" in refusal(POLICY, tmp_path / "nowhere", tmp_path / "out")
    (tmp_path / "full" / "diary.txt").unlink()
    assert "no images" in refusal(POLICY, tmp_path / "full", tmp_path / "out")
    assert contents(source) == {name[7:]: digest for name, digest in before.items()}


def test_broken_images_are_named(source: Path, tmp_path: Path) -> None:
    whole = (source / "cats/001.png").read_bytes()
    (source / "cats/001.png").write_bytes(whole[: len(whole) // 2])
    assert "cats/001.png: not a readable image" in refusal(POLICY, source, tmp_path / "out")
    (source / "cats/001.png").write_bytes(b"no image at all")
    message = refusal(POLICY, source, tmp_path / "out")
    assert "cats/001.png: not a readable image" in message
    (source / "cats/001.png").write_bytes(whole)
    apply_folder(POLICY, source, tmp_path / "out")
    apply_folder(POLICY, source, tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_sixteen_bits_are_refused_and_other_modes_converted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    Image.new("RGBA", (5, 4), (10, 20, 30, 40)).save(tmp_path / "in/clear.png")
    Image.new("LA", (5, 4), (10, 40)).save(tmp_path / "in/grey.png")
    Image.new("CMYK", (5, 4), (10, 20, 30, 40)).save(tmp_path / "in/print.jpg")
    apply_folder(Policy.parse("0"), tmp_path / "in", tmp_path / "out")
    assert read(tmp_path / "out/clear.png").getpixel((0, 0)) == (245, 235, 225)
    assert read(tmp_path / "out/grey.png").getpixel((0, 0)) == 245
    assert read(tmp_path / "out/print.jpg.png").mode == "RGB"
    Image.new("I;16", (5, 4), 4000).save(tmp_path / "in/deep.png")
    assert "deep.png: expected 8 bits per channel, got more (mode I;16)" in refusal(
        Policy.parse("0"), tmp_path / "in", tmp_path / "out"
    )


def test_names_that_would_meet(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.png", "a.jpg", "a.jpeg", "A.PNG"):
        Image.new("L", (3, 3), 7).save(tmp_path / "in" / name)
    apply_folder(Policy.parse("0"), tmp_path / "in", tmp_path / "out")
    assert set(contents(tmp_path / "out")) == {"a.png", "a.jpg.png", "a.jpeg.png", "A.PNG.png", MANIFEST}
    Image.new("L", (3, 3), 7).save(tmp_path / "in" / "a.jpg.png")
    assert "a.jpg and a.jpg.png would both become a.jpg.png" in refusal(
        Policy.parse("0"), tmp_path / "in", tmp_path / "o"
    )


def read(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        return picture.copy()


def refusal(policy: Policy, source: Path, target: Path, seed: int = 0) -> str:
    with pytest.raises(GradveilError) as caught:
        apply_folder(policy, source, target, seed=seed)
    assert "\n" not in str(caught.value)
    return str(caught.value)
