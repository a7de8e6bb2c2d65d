"""Write embedded images in the layouts of other datasets: small, but real pixels in the official formats."""

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from gradveil.types import ImageSet

TINY_WNIDS = ["n01443537", "n01629819", "n01641577"]
MEDICAL = ["AbdomenCT", "BreastMRI", "CXR", "ChestCT", "Hand", "HeadCT"]


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def balanced(images: ImageSet, per_class: int) -> ImageSet:
    """The first images of every class, in the set's order."""
    chosen = torch.cat([(images.labels == label).nonzero()[:per_class, 0] for label in range(len(images.classes))])
    return images.take(chosen.sort().values)


def write_idx(folder: Path, train: ImageSet, test: ImageSet, *, packed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, part in (("train", train), ("t10k", test)):
        for kind, array in (
            ("images-idx3", part.images[:, 0].numpy()),
            ("labels-idx1", part.labels.to(torch.uint8).numpy()),
        ):
            content = idx(array)
            name = f"{prefix}-{kind}-ubyte"
            (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)


def colour(images: ImageSet, count: int, size: int) -> torch.Tensor:
    """Coloured images (count, 3, size, size) whose channels are three different grey images."""
    grey = images.images[: count * 3, 0].numpy()
    scaled = [np.asarray(Image.fromarray(plane).resize((size, size))) for plane in grey]
    return torch.from_numpy(np.stack(scaled)).reshape(count, 3, size, size)


def save(path: Path, pixels: torch.Tensor, **options: object) -> None:
    """One image (C, H, W) to a file in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = pixels.numpy()
    Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0).copy()).save(path, **options)


def class_folders(root: Path, images: torch.Tensor, classes: list[str], per_class: int, suffix: str = ".png") -> None:
    for number, name in enumerate(classes):
        for index in range(per_class):
            save(root / name / f"{index:03}{suffix}", images[number * per_class + index])


def make_tar(folder: Path, path: Path, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for item in sorted(folder.iterdir()):
            archive.add(item, item.name)
    return path


def make_zip(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for item in sorted(folder.rglob("*")):
            archive.write(item, item.relative_to(folder))
    return path


def png(pixels: torch.Tensor) -> bytes:
    buffer = io.BytesIO()
    array = pixels.numpy()
    Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0).copy()).save(buffer, "PNG")
    return buffer.getvalue()
