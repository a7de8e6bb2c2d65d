"""A whole folder of images through a policy, offline: in parallel, resumable, originals untouched."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image

from gradveil.errors import GradveilError
from gradveil.io.files import LARGEST_SETTINGS, parse_file, parse_object, read_bytes, releasing, write_json, writing
from gradveil.io.locks import working_alone
from gradveil.io.pictures import decode_image, refusing_huge_images, to_eight_bit
from gradveil.parallel import run_jobs
from gradveil.progress import Progress, silent
from gradveil.randomness import derive_seed
from gradveil.transforms.adapters import PolicyTransform
from gradveil.transforms.policy import Policy

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
LARGEST_IMAGE = 2**30
MANIFEST = "gradveil-apply.json"
_FORMAT = 1
_AT_ONCE = 32  # files per task: little enough for a lively progress bar


@dataclass(frozen=True)
class FolderResult:
    """How many images this run wrote, and how many an earlier run had already written."""

    written: int
    skipped: int


def apply_folder(
    policy: Policy,
    source: str | Path,
    target: str | Path,
    *,
    seed: int = 0,
    workers: int = 1,
    progress: Progress = silent,
) -> FolderResult:
    """Write every image under `source` to the same place under `target`, transformed, as lossless PNG.

    `a.png` keeps its name and `a.jpg` becomes `a.jpg.png`, so that two sources never meet. The draw of an image is a
    function of (seed, relative path). Finished images are not redone; a target made with another policy or seed is
    refused. Only pixels are kept: transparency and metadata are not.
    """
    source, target = Path(source), Path(target)
    _check_places(source, target)
    names = sorted(path.relative_to(source) for path in source.rglob("*") if _is_image(path))
    if not names:
        raise GradveilError(f"{source}: no images ({', '.join(sorted(SUFFIXES))})")
    places = {name: _place(name) for name in names}
    if len(set(places.values())) < len(names):
        clash = next(name for name in names if name != places[name] and places[name] in places)
        raise GradveilError(f"{source}: {clash} and {places[clash]} would both become {places[clash]}")
    with releasing(target / MANIFEST, kept=target / places[names[0]]):
        _claim(target, policy, seed)
        with working_alone(target / MANIFEST):
            return _apply_to(
                names, places, partial(_transform, policy, seed, source, target), target, workers, progress
            )


def _apply_to(
    names: list[Path],
    places: dict[Path, Path],
    transform: Callable[[list[Path]], int],
    target: Path,
    workers: int,
    progress: Progress,
) -> FolderResult:
    todo = [name for name in names if not (target / places[name]).exists()]
    tasks = [todo[start : start + _AT_ONCE] for start in range(0, len(todo), _AT_ONCE)]
    skipped = len(names) - len(todo)
    with progress("transforming", len(names), "images") as advance:
        advance(skipped)
        for count in run_jobs(transform, tasks, workers=workers):
            advance(count)
    return FolderResult(len(todo), skipped)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _place(name: Path) -> Path:
    return name if name.suffix == ".png" else name.with_name(f"{name.name}.png")


def _check_places(source: Path, target: Path) -> None:
    if not source.is_dir():
        raise GradveilError(f"{source}: no such folder")
    if target.exists() and not target.is_dir():
        raise GradveilError(f"{target}: exists and is not a folder")
    inner, outer = target.resolve(), source.resolve()
    if inner == outer or outer in inner.parents or inner in outer.parents:
        raise GradveilError(
            f"{target}: the target must lie outside the source {source}, and the source outside the target"
        )


def _claim(target: Path, policy: Policy, seed: int) -> None:
    """Write the manifest, or check that the one there says the same."""
    wanted = {"format": _FORMAT, "policy": policy.names(), "seed": seed}
    manifest = target / MANIFEST
    if manifest.exists():
        remedy = "remove the target and start again"
        found = parse_file(manifest, parse_object, largest=LARGEST_SETTINGS, remedy=remedy)
        if found != wanted:
            raise GradveilError(
                f"{target}: made with policy {found.get('policy')}, seed {found.get('seed')}, "
                f"not with policy {policy.names()}, seed {seed}; choose another"
            )
    elif target.exists() and any(target.iterdir()):
        raise GradveilError(f"{target}: not empty and not made by gradveil; choose another target")
    else:
        write_json(manifest, wanted)


def _transform(policy: Policy, seed: int, source: Path, target: Path, names: list[Path]) -> int:
    transform = PolicyTransform(policy, seed)
    for name in names:
        picture = _open(source / name)
        done = transform(picture, index=derive_seed(0, "file", name.as_posix()))
        with writing(target / _place(name)) as temporary:
            done.save(temporary, format="PNG")
    return len(names)


def _open(path: Path) -> Image.Image:
    try:
        with refusing_huge_images():
            image = decode_image(read_bytes(path, largest=LARGEST_IMAGE))
        if image.mode.startswith(("I", "F")):
            raise GradveilError(
                f"expected 8 bits per channel, got more (mode {image.mode}), which a policy would cut off; convert it first, "
                "e.g. mogrify -depth 8"
            )
        return to_eight_bit(image)
    except (OSError, GradveilError) as error:
        raise GradveilError(f"{path}: {error}") from error
