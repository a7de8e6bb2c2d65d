"""What the catalogue knows about a dataset."""

from collections.abc import Callable
from dataclasses import dataclass

from gradveil.datasets.encoded import EncodedSet
from gradveil.datasets.sources import Source
from gradveil.types import ImageSet


@dataclass(frozen=True)
class Archive:
    """One official file: its name, where it is published, and its published checksum and size."""

    file: str
    url: str
    md5: str
    bytes: int


@dataclass(frozen=True)
class Parts:
    """The training and the test part as stored, in memory already or still to be decoded."""

    train: ImageSet | EncodedSet
    test: ImageSet | EncodedSet


Reader = Callable[["CatalogueEntry", Source, int], Parts]


@dataclass(frozen=True)
class CatalogueEntry:
    """A dataset with a name.

    `shape` is (C, H, W). A folder holds the dataset if it has all names of one of `layouts` (a file may also be there
    as NAME.gz); it is looked for under the names in `folders`, and as an archive matching a pattern in `packed`. `read`
    turns such a folder or archive and a seed into images. `placing` tells a user what to put where.
    """

    name: str
    title: str
    train: int
    test: int
    shape: tuple[int, int, int]
    classes: int
    licence: str
    redistributable: bool
    read: Reader
    layouts: tuple[tuple[str, ...], ...]
    folders: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()
    placing: str = ""
    embedded: bool = False

    @property
    def download_bytes(self) -> int:
        return sum(archive.bytes for archive in self.archives)
