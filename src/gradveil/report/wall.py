"""The pictures of the attacks, as tiles for a wall."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from gradveil.auditing.folder import StoredRecord
from gradveil.io.pictures import readable_pixels
from gradveil.leakage.records import ESTIMATE, Record
from gradveil.report.groups import final_picture

# More would make a page that no browser likes; what is left out is said.
MOST_TILES = 1000


@dataclass(frozen=True)
class Picture:
    """A picture with its caption; `png` is None where the record holds none that can be read."""

    caption: str
    png: str | None
    width: int
    height: int


@dataclass(frozen=True)
class Tile:
    """One record on the wall."""

    record: Record
    gif: str | None
    pictures: tuple[Picture, ...]


def wall_tiles(stored: Sequence[StoredRecord]) -> list[Tile]:
    """A tile per record, or where there are too many those that leak most of every cell; highest rank first, then most detail."""
    cells: dict[tuple[object, ...], list[Tile]] = {}
    for one in stored:
        of = one.record.scenario
        key = (of.setting, of.defense, of.attacker)
        gif = f"gifs/{quote(one.name)}.gif" if one.animated else None
        cells.setdefault(key, []).append(Tile(one.record, gif, ()))
    for cell in cells.values():
        cell.sort(key=_most_leaked_first)
    ranked = [
        tile
        for rank in range(max(map(len, cells.values())))
        for cell in cells.values()
        for tile in cell[rank : rank + 1]
    ]
    shown = sorted(ranked[:MOST_TILES], key=_most_leaked_first)
    return [Tile(tile.record, tile.gif, _pictures(tile.record)) for tile in shown]


def _most_leaked_first(tile: Tile) -> tuple[float, float, int]:
    percentile = tile.record.percentile
    return -1.0 * (-1 if percentile is None else percentile), -tile.record.detail, tile.record.index


def _pictures(record: Record) -> tuple[Picture, ...]:
    of = record.pictures
    same = of["original"] == of["transformed"]
    names = {
        "original": "private = shared" if same else "private",
        "transformed": "shared",
        "reconstruction": "rebuilt",
    }
    if final_picture(record) == ESTIMATE:
        names[ESTIMATE] = "estimate"
    if same:
        del names["transformed"]
    return tuple(Picture(caption, *check_picture(of[name])) for name, caption in names.items() if name in of)


def check_picture(text: str) -> tuple[str | None, int, int]:
    """A base64 PNG and its size, or None where it is something else: records come from anyone."""
    pixels = readable_pixels(text)
    return (None, 0, 0) if pixels is None else (text, pixels.shape[1], pixels.shape[0])
