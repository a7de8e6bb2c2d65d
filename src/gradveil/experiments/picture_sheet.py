"""Figure 4 of the papers: private images, what is shared of them, and what is rebuilt, on one sheet."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from gradveil.experiments.records import Picture
from gradveil.io.files import writing
from gradveil.io.pictures import from_png
from gradveil.leakage.scenario import UNDEFENDED

TILE, GAP, CAPTION, HEADING = 96, 6, 15, 40


def write_picture_sheet(path: Path, pictures: Sequence[Picture]) -> None:
    """A block per network and data, a line per image: the private image, what is shared with each defense, what is rebuilt.

    Below what is rebuilt stands its PSNR to what was shared, the papers' figure.
    """
    blocks: dict[tuple[str, str], dict[int, list[Picture]]] = {}
    for one in pictures:
        blocks.setdefault((one.model, one.dataset), {}).setdefault(one.index, []).append(one)
    columns = max(2 * len(own) for lines in blocks.values() for own in lines.values())
    height = sum(HEADING + len(lines) * (TILE + CAPTION + GAP) for lines in blocks.values())
    sheet = Image.new("RGB", (GAP + columns * (TILE + GAP), GAP + height), "white")
    pen, font, top = ImageDraw.Draw(sheet), ImageFont.load_default(12), GAP
    for (model, dataset), lines in blocks.items():
        pen.text((GAP, top), f"{model} on {dataset}", fill="black", font=font)
        for column, title in enumerate(_titles(next(iter(lines.values())))):
            pen.text((_left(column), top + HEADING // 2), title, fill="black", font=font)
        top += HEADING
        for own in lines.values():
            for column, (one, side) in enumerate(
                (one, side) for one in own for side in ("transformed", "reconstruction")
            ):
                picture = from_png(one.pictures[side]).convert("RGB").resize((TILE, TILE), Image.Resampling.NEAREST)
                sheet.paste(picture, (_left(column), top))
                if side == "reconstruction":
                    pen.text((_left(column), top + TILE), f"{one.psnr:.1f} dB", fill="black", font=font)
            top += TILE + CAPTION + GAP
    with writing(path) as temporary:
        sheet.save(temporary, format="PNG", optimize=True)


def _left(column: int) -> int:
    return GAP + column * (TILE + GAP)


def _titles(line: Sequence[Picture]) -> list[str]:
    """What stands above the columns of a block."""
    shared = ["private" if one.row == UNDEFENDED else f"{one.row} shared" for one in line]
    return [title for one in shared for title in (one, "rebuilt")]
