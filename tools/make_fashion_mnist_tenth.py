"""Make the embedded tenth of Fashion-MNIST from the four official files, or check what is embedded against them.

usage: make_fashion_mnist_tenth.py FOLDER [--check]

FOLDER holds the official `*-ubyte.gz` files (Debian's package dataset-fashion-mnist, or the download of
`gradveil.datasets.load("fashion-mnist")`). Which images: those with the lowest hashed number in their class; in which
order: by that number, so that classes are mixed from the start. Both are pure functions of the image's index in
the official file, hence the files come out the same on every machine (with the same release of liblzma; the pixels with
any).
"""

import argparse
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from gradveil.datasets import load, silent
from gradveil.datasets.places import EMBEDDED
from gradveil.datasets.readers import EMBEDDED_TEST, EMBEDDED_TRAIN
from gradveil.io.files import writing
from gradveil.randomness import hashed_uniform
from gradveil.types import ImageSet

SEED = 2017
PER_CLASS = {"train": 600, "test": 100}
# Found by measuring: pixels have no alignment (pb=0), and the high bits of the pixel before are worth knowing (lc=4).
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def chosen_indices(labels: torch.Tensor, part: str) -> torch.Tensor:
    """Indices of the chosen images of `part`, in the order in which they are stored."""
    draws = hashed_uniform(torch.arange(len(labels)), SEED, "fashion-mnist-tenth", part)
    order = torch.argsort(draws, stable=True)
    kept = torch.cat([order[labels[order] == label][: PER_CLASS[part]] for label in range(10)])
    return kept[torch.argsort(draws[kept], stable=True)]


def records(images: ImageSet) -> bytes:
    """A label byte and 784 pixels per image."""
    return torch.cat([images.labels[:, None].to(torch.uint8), images.images.flatten(1)], dim=1).numpy().tobytes()


def made(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Names and unpacked contents of the files."""
    official = load("fashion-mnist", data_dir=folder, download=False, progress=silent)
    for part, images, names in (("train", official.train, EMBEDDED_TRAIN), ("test", official.test, EMBEDDED_TEST)):
        indices = chosen_indices(images.labels, part)
        for name, share in zip(names, indices.chunk(len(names)), strict=True):
            yield name, records(images.take(share))


def check(folder: Path) -> None:
    """Compare embedded and official pixels and labels, image by image, through the public loader."""
    official = load("fashion-mnist", data_dir=folder, download=False, progress=silent)
    embedded = load("fashion-mnist-tenth")
    for part, whole, tenth in (
        ("train", official.train, embedded.train),
        ("test", official.test, embedded.test),
    ):
        expected = whole.take(chosen_indices(whole.labels, part))
        if not torch.equal(expected.images, tenth.images) or not torch.equal(expected.labels, tenth.labels):
            sys.exit(f"{part}: embedded images differ from the official ones")
        counts = np.bincount(tenth.labels.numpy())
        print(f"{part}: {len(tenth):,} images equal the official pixels and labels, {counts.tolist()} per class")
    for name, content in made(folder):
        same = (EMBEDDED / name).read_bytes() == lzma.compress(content, filters=FILTERS)
        print(f"{name}: {'same bytes' if same else 'other compressed bytes (another liblzma?)'}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    arguments = parser.parse_args()
    if arguments.check:
        check(arguments.folder)
        return
    for name, content in made(arguments.folder):
        with writing(EMBEDDED / name) as temporary:
            temporary.write_bytes(lzma.compress(content, filters=FILTERS))
        print(f"{name}: {len(content):,} bytes in {(EMBEDDED / name).stat().st_size:,}")


if __name__ == "__main__":
    main()
