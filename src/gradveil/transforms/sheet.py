"""Contact sheets: real images before, during and after a policy."""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from gradveil.io.files import writing
from gradveil.io.pictures import to_pil
from gradveil.transforms.library import check_images
from gradveil.transforms.policy import Policy

_TILE = 96
_GAP = 6
_LABEL = 300
_INK, _SOFT, _PAPER, _LINE = (28, 30, 34), (110, 114, 122), (255, 255, 255), (222, 224, 228)


def contact_sheet(policy: Policy, images: Tensor, path: str | Path, *, seed: int = 0) -> None:
    """Write a PNG: a column per image, first the originals, then every step of every member with what it does.

    `images` uint8 `(N, C, H, W)`, eight or so look best. The last row of a member is what training would see.
    """
    check_images(images)
    size = (images.shape[2], images.shape[3])
    rows: list[tuple[str, str, Tensor, bool]] = [("original", f"{size[1]} x {size[0]} pixels", images, False)]
    for member in policy.members:
        for length in range(1, len(member) + 1):
            op = member[length - 1]
            title = op.spelling if op.index is None else f"{op.index}  {op}"
            done = Policy((member[:length],))(images, seed=seed)
            rows.append((title, op.describe(size), done, length == 1))
        if not member:
            rows.append(("identity", "leave the image as it is", images, True))
    sheet = _draw(str(policy), rows)
    with writing(Path(path)) as temporary:
        sheet.save(temporary, format="PNG")


def _draw(title: str, rows: list[tuple[str, str, Tensor, bool]]) -> Image.Image:
    images = rows[0][2]
    top = 52
    width = _LABEL + len(images) * (_TILE + _GAP) + 2 * _GAP
    sheet = Image.new("RGB", (width, top + len(rows) * (_TILE + _GAP) + _GAP), _PAPER)
    pen = ImageDraw.Draw(sheet)
    large, normal, small = (ImageFont.load_default(points) for points in (20, 15, 13))
    pen.text((2 * _GAP, 14), _shorten(pen, f"policy {title}", large, width - 4 * _GAP), _INK, large)
    for number, (name, words, batch, starts) in enumerate(rows):
        y = top + number * (_TILE + _GAP)
        if starts:  # a line above every member
            pen.line((2 * _GAP, y - _GAP // 2 - 1, width - 2 * _GAP, y - _GAP // 2 - 1), _LINE, 1)
        pen.text((2 * _GAP, y + 14), name, _INK, normal)
        for line, text in enumerate(_wrap(pen, words, small, _LABEL - 4 * _GAP)[:3]):
            pen.text((2 * _GAP, y + 36 + 17 * line), text, _SOFT, small)
        for column, image in enumerate(batch):
            sheet.paste(_tile(image), (_LABEL + column * (_TILE + _GAP), y))
    return sheet


def _tile(image: Tensor) -> Image.Image:
    picture = to_pil(image.expand(3, -1, -1))
    scale = _TILE / max(picture.size)
    # Small images keep their square pixels: smoothing would hide what the policy does.
    how = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    fitted = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))), how)
    tile = Image.new("RGB", (_TILE, _TILE), _PAPER)
    tile.paste(fitted, ((_TILE - fitted.width) // 2, (_TILE - fitted.height) // 2))
    return tile


Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def _wrap(pen: ImageDraw.ImageDraw, text: str, font: Font, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if pen.textlength(longer, font) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _shorten(pen: ImageDraw.ImageDraw, text: str, font: Font, width: int) -> str:
    while pen.textlength(text, font) > width and len(text) > 4:
        text = f"{text[:-4]}..."
    return text
