"""From a dataset's name to its images."""

from contextlib import suppress
from pathlib import Path

from gradveil.datasets.archives import SUFFIXES, open_archive
from gradveil.datasets.catalogue import DATASETS
from gradveil.datasets.download import download as download_archives
from gradveil.datasets.encoded import EncodedSet, decode_all
from gradveil.datasets.entries import CatalogueEntry, Parts
from gradveil.datasets.hub import read_hub
from gradveil.datasets.names import DatasetName, parse_name
from gradveil.datasets.places import EMBEDDED, data_folder, find_dataset, open_source
from gradveil.datasets.selection import in_turn, subset_indices
from gradveil.datasets.sources import Folder
from gradveil.datasets.stacking import resize
from gradveil.datasets.trees import read_class_folders
from gradveil.errors import GradveilError
from gradveil.io.files import printable
from gradveil.naming import unknown
from gradveil.progress import Progress, bar
from gradveil.types import Dataset


def load(
    name: str, *, data_dir: Path | None = None, seed: int = 0, download: bool = True, progress: Progress = bar
) -> Dataset:
    """Load the dataset called `name`: a name in `DATASETS`, `folder:PATH` or `hf:NAME[:CONFIG]`.

        load("cifar10[:10%]").train.images  # uint8 (5000, 3, 32, 32)

    `NAME@32` scales the images to 32x32. `NAME[:10%]` and `NAME[:500]` keep a part of the training images, drawn with
    `seed` so that the classes stay balanced; the test images stay whole. `seed` also splits folders that have no test
    part.

    Images from class folders come with the classes in turn, and sorted by name within a class.

    Files are looked for in `data_dir`, or else $GRADVEIL_DATA, or else the user's cache folder; official archives are
    downloaded there unless `download` is false.
    """
    wanted = parse_name(name)
    parts = _read_parts(wanted, data_dir, seed, download, progress)
    if wanted.subset is not None:
        chosen = subset_indices(parts.train.labels, wanted.subset, parts.train.classes, seed=seed)
        parts = Parts(parts.train.take(chosen), parts.test)
    train, test = parts.train, parts.test
    if isinstance(train, EncodedSet) and isinstance(test, EncodedSet):
        if wanted.kind != "hf":  # class folders: the first few images should be of many classes
            train, test = (part.take(in_turn(part.labels)) for part in (train, test))
        return Dataset(printable(name), *decode_all(train, test, wanted.size, progress))
    assert not isinstance(train, EncodedSet) and not isinstance(test, EncodedSet)  # noqa: PT018
    if wanted.size is not None:
        train, test = resize(train, wanted.size), resize(test, wanted.size)
    return Dataset(printable(name), train, test)


def _read_parts(wanted: DatasetName, data_dir: Path | None, seed: int, download: bool, progress: Progress) -> Parts:
    if wanted.kind == "folder":
        try:
            return _read_own(Path(wanted.base).expanduser(), seed)
        except (OSError, RuntimeError) as error:  # a name that is too long, a user who does not exist
            raise GradveilError(f"folder:{wanted.base[:80]}: {getattr(error, 'strerror', None) or error}") from error
    if wanted.kind == "hf":
        return read_hub(wanted.base, seed)
    entry = _find_entry(wanted.base)
    if entry.embedded:
        return entry.read(entry, Folder(EMBEDDED), seed)
    folder = data_folder(data_dir)
    found = find_dataset(entry, folder)
    if found is None:
        if not (download and entry.archives):
            raise GradveilError(_how_to_place(entry, folder))
        download_archives(entry, folder, progress)
        found = find_dataset(entry, folder)
    if found is None:
        raise GradveilError(
            f"{folder / entry.name} still has no {entry.name} after the download; put {entry.placing} there"
        )
    return entry.read(entry, open_source(entry, found), seed)


def _read_own(path: Path, seed: int) -> Parts:
    if path.is_file() and path.name.endswith(SUFFIXES):
        return read_class_folders(open_archive(path), seed)
    if not path.is_dir():
        raise GradveilError(f"folder:{path} is not a folder (nor an archive: {', '.join(SUFFIXES)})")
    return read_class_folders(Folder(path), seed)


def _find_entry(name: str) -> CatalogueEntry:
    if name in DATASETS:
        return DATASETS[name]
    with suppress(OSError, RuntimeError):  # no name of a folder
        if Path(name).expanduser().is_dir():
            raise GradveilError(f"unknown dataset {name!r}; for a folder of images say folder:{name}")
    raise unknown(name.lower(), DATASETS, "dataset", ", folder:PATH, hf:NAME[:CONFIG]")


def _how_to_place(entry: CatalogueEntry, folder: Path) -> str:
    where = f"put {entry.placing} into {folder / entry.name}"
    if entry.archives:
        return f"{entry.name} is not in {folder} and downloading is off; allow it, or {where}"
    return f"{entry.name} is not in {folder} and has no official address to download from; {where}"
