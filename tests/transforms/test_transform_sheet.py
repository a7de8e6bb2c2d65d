"""Contact sheets show the real pixels."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gradveil.transforms import Policy, contact_sheet


def test_tiles_are_the_images_step_by_step(tmp_path: Path, colour: Tensor) -> None:
    images = torch.nn.functional.pad(colour[:5], (2, 2, 2, 2))  # 32x32: a tile is three times as large
    policy = Policy.parse("3-1+identity")
    contact_sheet(policy, images, tmp_path / "sheet.png", seed=2)
    sheet = torch.from_numpy(np.array(read(tmp_path / "sheet.png"))).permute(2, 0, 1)
    rows = [images, Policy.parse("3")(images, seed=2), Policy.parse("3-1")(images, seed=2), images]
    for number, row in enumerate(rows):
        for column, image in enumerate(row):
            y, x = 52 + number * 102, 300 + column * 102
            tile = sheet[:, y : y + 96, x : x + 96]
            assert torch.equal(tile[:, ::3, ::3], image)
            assert torch.equal(tile[:, 2::3, 2::3], image)


def test_labels_are_written(tmp_path: Path, grey: Tensor) -> None:
    contact_sheet(Policy.parse("3-contrast:6"), grey[:3], tmp_path / "sheet.png")
    label = np.array(read(tmp_path / "sheet.png"))[:, :290]
    for top in range(52, label.shape[0] - 6, 102):
        assert (label[top : top + 96] < 128).any()


def test_one_narrow_image_and_a_large_one(tmp_path: Path) -> None:
    contact_sheet(Policy.parse("0"), torch.zeros(1, 1, 1, 90, dtype=torch.uint8), tmp_path / "thin.png")
    many = Policy.parse("+".join(["0"] * 40))
    contact_sheet(many, torch.zeros(1, 3, 300, 200, dtype=torch.uint8), tmp_path / "big.png")
    assert read(tmp_path / "thin.png").size[0] == read(tmp_path / "big.png").size[0]


def read(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        return picture.copy()
