"""One picture for people in a hurry: a column per defense, below the private image what two attackers rebuild."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from gradveil.io.files import writing
from gradveil.io.pictures import from_png
from gradveil.leakage.records import Record
from gradveil.report.groups import final_picture

WIDTH = 800
TILE, GAP = 104, 12
TITLE, FOOT, PAIR = 46, 64, 10  # heights above and below the pictures, and between two private images
INK, QUIET, PAPER = "#1d1f24", "#5f6570", "white"
ROWS = {
    "private": "private\nimage",
    "plain": "attacker\nignores\nthe defense",
    "adaptive": "attacker\nknows\nthe defense",
}

BELOW = "leak to the\nworse attacker,\naccuracy"


def write_poster(
    records: Sequence[Record],
    columns: Mapping[str, tuple[str, str]],
    path: Path,
    *,
    images: int = 2,
) -> Path:
    """Draw the first `images` private images; `columns` gives a defense's title and what is said below its column,
    which is about the worse of both attackers: the one who gets more.

    Of several attacks the picture of the best one is shown: the one that ranks the private image highest, then the one that is
    nearest to it. It is drawn at twice its width of 800 pixels.
    """
    best = _best(records)
    indices = sorted({index for _, _, index in best})[:images]
    side = WIDTH - len(columns) * (TILE + GAP)
    height = TITLE + images * (len(ROWS) * (TILE + GAP) + PAIR) + FOOT
    sheet = Image.new("RGB", (2 * WIDTH, 2 * height), PAPER)
    pen = ImageDraw.Draw(sheet)
    for x, (defense, (title, foot)) in enumerate(columns.items()):
        left = side + x * (TILE + GAP)
        _write(pen, left, 6, title, 17, INK)
        _write(pen, left, height - FOOT, foot, 14, INK)
        for y, index in enumerate(indices):
            top = TITLE + y * (len(ROWS) * (TILE + GAP) + PAIR)
            for row, who in enumerate(ROWS):
                found = best.get((defense, "plain" if who == "private" else who, index))
                if found is not None:
                    picture = found.pictures["original" if who == "private" else final_picture(found)]
                    tile = from_png(picture).convert("RGB").resize((2 * TILE, 2 * TILE), Image.Resampling.NEAREST)
                    sheet.paste(tile, (2 * left, 2 * (top + row * (TILE + GAP))))
    for y in range(len(indices)):
        for row, said in enumerate(ROWS.values()):
            top = TITLE + y * (len(ROWS) * (TILE + GAP) + PAIR) + row * (TILE + GAP)
            _write(pen, 6, top + TILE // 2 - 9 * len(said.splitlines()), said, 15, QUIET)
    _write(pen, 6, height - FOOT, BELOW, 14, QUIET)
    with writing(path) as temporary:
        sheet.save(temporary, format="PNG", optimize=True)
    return path


def _best(records: Sequence[Record]) -> dict[tuple[str, str, int], Record]:
    """Per (defense, attacker, image) the record of the attack that got most."""
    best: dict[tuple[str, str, int], Record] = {}
    for record in records:
        key = (record.scenario.defense, record.scenario.attacker, record.index)
        if key not in best or _got(record) > _got(best[key]):
            best[key] = record
    return best


def _got(record: Record) -> tuple[float, float]:
    return (0.0 if record.rank is None else record.rank.percentile, record.detail)


def _write(pen: ImageDraw.ImageDraw, left: int, top: int, text: str, size: int, colour: str) -> None:
    pen.multiline_text((2 * left, 2 * top), text, fill=colour, font=ImageFont.load_default(2 * size), spacing=4)
