"""Where a dataset's files are looked for: one folder, chosen by argument, environment or default."""

import os
from collections.abc import Iterator
from pathlib import Path

from gradveil.datasets.archives import open_archive
from gradveil.datasets.entries import CatalogueEntry
from gradveil.datasets.sources import Folder, Source, Subfolder
from gradveil.errors import GradveilError

EMBEDDED = Path(__file__).parent / "embedded"
VARIABLE = "GRADVEIL_DATA"


def data_folder(data_dir: Path | None) -> Path:
    """Where data is kept: `data_dir`, or else $GRADVEIL_DATA, or else the user's cache folder. It may not exist yet."""
    given = data_dir or os.environ.get(VARIABLE)
    if given:
        folder = Path(given).expanduser()
        if folder.exists() and not folder.is_dir():
            raise GradveilError(f"data folder {folder} is a file; give the folder that holds it")
        return folder
    import pooch

    return Path(pooch.os_cache("gradveil"))


def find_dataset(entry: CatalogueEntry, folder: Path) -> Path | None:
    """The unpacked folder or else the archive of `entry` in `folder`, if there is one. Only looks at names."""
    if entry.embedded:
        return EMBEDDED
    bases = [base for base in (folder, folder / entry.name) if base.is_dir()]
    for base in bases:
        for candidate in (base, *(base / name for name in entry.folders)):
            if any(_holds(Folder(candidate), "", layout) for layout in entry.layouts):
                return candidate
    for base in bases:
        for pattern in entry.packed:
            for archive in sorted(base.glob(pattern)):
                if archive.is_file():
                    return archive
    return None


def open_source(entry: CatalogueEntry, path: Path) -> Source:
    """The folder at `path`, or the folder inside the archive at `path`, that has one of the layouts of `entry`."""
    if path.is_dir():
        return Folder(path)
    archive = open_archive(path)
    for layout in entry.layouts:
        for prefix in _prefixes(archive, layout[0]):
            if _holds(archive, prefix, layout):
                return Subfolder(archive, prefix.rstrip("/")) if prefix else archive
    raise GradveilError(f"{path} does not hold {entry.name}: no {' and '.join(entry.layouts[0])} in it")


def _prefixes(source: Source, name: str) -> Iterator[str]:
    files, folders = source.walk("")
    suffixes = (name, f"{name}.gz")
    found = {
        path.removesuffix(suffix)
        for path in (*files, *folders)
        for suffix in suffixes
        if path == suffix or path.endswith(f"/{suffix}")
    }
    yield from sorted(found, key=lambda prefix: (len(prefix), prefix))


def _holds(source: Source, prefix: str, layout: tuple[str, ...]) -> bool:
    return all(source.exists(f"{prefix}{name}") or source.exists(f"{prefix}{name}.gz") for name in layout)
