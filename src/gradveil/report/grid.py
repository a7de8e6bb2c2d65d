"""One picture of what leaks: a row per image, a column per step."""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from gradveil.files import writing
from gradveil.pictures import from_png
from gradveil.report.groups import Group
from gradveil.scenario import UNDEFENDED

TILE = 112
GAP = 8
LABEL = 34


def write_grid(group: Group, path: Path) -> Path:
    """Draw the private images, what is rebuilt without a defense, and for each policy what is shared and rebuilt."""
    columns = [(defense, name) for defense in group.columns for name in _steps(defense)]
    width = GAP + len(columns) * (TILE + GAP)
    sheet = Image.new("RGB", (width, LABEL + len(group.indices) * (TILE + GAP) + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(12)
    for x, (defense, name) in enumerate(columns):
        title = {"original": "private", "transformed": f"{defense}\nshared"}.get(
            name, "rebuilt" if defense == UNDEFENDED else "\nrebuilt"
        )
        draw.multiline_text((GAP + x * (TILE + GAP), 3), title, fill="black", font=font, spacing=1)
        for y, index in enumerate(group.indices):
            record = group.columns[defense].get(index)
            if record is not None:
                tile = from_png(record.pictures[name]).convert("RGB").resize((TILE, TILE), Image.Resampling.NEAREST)
                sheet.paste(tile, (GAP + x * (TILE + GAP), LABEL + y * (TILE + GAP)))
    with writing(path) as temporary:
        sheet.save(temporary, format="PNG", optimize=True)
    return path


def _steps(defense: str) -> tuple[str, ...]:
    return ("original", "reconstruction") if defense == UNDEFENDED else ("transformed", "reconstruction")
