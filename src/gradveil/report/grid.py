"""One picture of what leaks: a row per image, a column per step."""

from collections.abc import Collection
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from gradveil.io.files import writing
from gradveil.io.pictures import from_png
from gradveil.leakage.records import ESTIMATE, Record
from gradveil.leakage.scenario import UNDEFENDED
from gradveil.report.groups import RecordGroup, final_picture, place

TILE = 112
GAP = 8
LABEL = 34
CAPTION = 16
ROW = TILE + CAPTION + GAP


def write_grid(group: RecordGroup, path: Path) -> Path:
    """A sheet of the private images, their undefended reconstructions, and for each policy what is shared and rebuilt.

    The last is the attacker's estimate where it made something else of the rebuilt image: undid the policy, took out noise. Below
    stands the place of the private image among others of its class, and how many dB nearer it is than a guess.
    """
    columns = [(defense, side) for defense in group.columns for side in ("shared", "rebuilt")]
    width = GAP + len(columns) * (TILE + GAP)
    sheet = Image.new("RGB", (width, LABEL + len(group.indices) * ROW + GAP), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(12)
    for x, (defense, side) in enumerate(columns):
        records = group.columns[defense]
        title = _shared_title(defense) if side == "shared" else _rebuilt_title(defense, records.values())
        pen.multiline_text((GAP + x * (TILE + GAP), 3), title, fill="black", font=font, spacing=1)
        for y, index in enumerate(group.indices):
            record = records.get(index)
            if record is not None:
                name = _target_picture(defense) if side == "shared" else final_picture(record)
                tile = from_png(record.pictures[name]).convert("RGB").resize((TILE, TILE), Image.Resampling.NEAREST)
                corner = (GAP + x * (TILE + GAP), LABEL + y * ROW)
                sheet.paste(tile, corner)
                if side == "rebuilt":
                    said = f"{place(record)}, {record.detail:+.1f} dB"
                    pen.text((corner[0], corner[1] + TILE + 1), said, fill="black", font=font)
    with writing(path) as temporary:
        sheet.save(temporary, format="PNG", optimize=True)
    return path


def _target_picture(defense: str) -> str:
    """Which picture the attack went for."""
    return "original" if defense == UNDEFENDED else "transformed"


def _shared_title(defense: str) -> str:
    return "private" if defense == UNDEFENDED else f"{defense}\nshared"


def _rebuilt_title(defense: str, records: Collection[Record]) -> str:
    said = "estimate" if any(final_picture(record) == ESTIMATE for record in records) else "rebuilt"
    return said if defense == UNDEFENDED else f"\n{said}"
