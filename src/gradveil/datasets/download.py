"""Official archives over the network: checked before they get their name, or not there at all."""

from dataclasses import dataclass
from pathlib import Path

from gradveil.datasets.entries import Archive, CatalogueEntry
from gradveil.errors import GradveilError
from gradveil.io.files import writing
from gradveil.progress import Advance, Progress

_TIMEOUT = 30  # seconds without any byte
_CHUNK = 1 << 16


def download(entry: CatalogueEntry, folder: Path, progress: Progress) -> None:
    """Fetch those archives of `entry` that are not yet in `folder`/NAME."""
    home = folder / entry.name
    missing = [made for made in (home, *home.parents) if not made.exists()]
    try:
        for archive in entry.archives:
            if not (home / archive.file).exists():
                _fetch(archive, home / archive.file, progress)
    except BaseException:
        # Also after Ctrl-C: folders made for files that did not come are removed again.
        for made in missing:
            if made.exists() and not any(made.iterdir()):
                made.rmdir()
        raise


def _fetch(archive: Archive, target: Path, progress: Progress) -> None:
    import pooch
    import requests

    by_hand = f"fetch {archive.url} by hand and put it into {target.parent}"
    try:
        with writing(target) as temporary, progress(archive.file, archive.bytes, "bytes") as advance:
            bar = _PoochBar(advance, archive.bytes)
            pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK, timeout=_TIMEOUT)(
                archive.url, str(temporary), None
            )
            got = pooch.file_hash(str(temporary), alg="md5")
            if got != archive.md5:
                raise GradveilError(
                    f"{archive.url} has md5 {got}, expected {archive.md5}; "
                    f"the download is damaged or the file was changed: nothing was kept, try again or {by_hand}"
                )
    except requests.RequestException as error:
        raise GradveilError(f"cannot download {archive.file} ({_reason(error)}); {by_hand}") from error
    except OSError as error:
        raise GradveilError(f"cannot write {target}: {error.strerror}; choose another data folder") from error


@dataclass
class _PoochBar:
    """What pooch expects of a progress bar. It counts whole chunks, then all again, hence the clipping."""

    advance: Advance
    total: int
    done: int = 0

    def update(self, count: int) -> None:
        step = min(count, self.total - self.done)
        self.done += step
        self.advance(step)

    def reset(self) -> None: ...

    def close(self) -> None: ...


def _reason(error: Exception) -> str:
    # requests wraps urllib3 wraps the system's error; the innermost says what happened in the fewest words.
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    return " ".join(str(inner).split())[:120] or type(inner).__name__
