"""A contact sheet of captioned images: all of them small, each over its caption."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

from configs.checks.captions import CaptionedFile, open_image
from configs.checks.prompts import read_text
from configs.errors import ConfigError

_SIDE, _TEXT, _GAP, _COLUMNS = 240, 54, 8, 5
_LINE = 38


def save_sheet(pairs: Sequence[CaptionedFile], file: Path) -> None:
    """Write the sheet as a PNG; what cannot be read is said in its place."""
    columns = max(1, min(_COLUMNS, len(pairs)))
    rows = max(1, -(-len(pairs) // columns))
    across, down = _SIDE + _GAP, _SIDE + _TEXT + _GAP
    sheet = Image.new("RGB", (columns * across + _GAP, rows * down + _GAP), "white")
    for number, pair in enumerate(pairs):
        row, column = divmod(number, columns)
        corner = (_GAP + column * across, _GAP + row * down)
        _paste(sheet, pair.image, corner)
        words = f"{pair.image.name}: {_said(pair.caption)}"
        lines = textwrap.wrap(words, _LINE)[:4]
        # The font that is always there has Latin letters only.
        text = "\n".join(lines).encode("latin-1", "replace").decode("latin-1")
        ImageDraw.Draw(sheet).text((corner[0], corner[1] + _SIDE + 2), text, fill="black")
    beside = file.with_suffix(".partial.png")
    sheet.save(beside)
    beside.replace(file)


def _paste(sheet: Image.Image, file: Path, corner: tuple[int, int]) -> None:
    try:
        small = open_image(file).convert("RGB")
    except ConfigError:
        box = (*corner, corner[0] + _SIDE, corner[1] + _SIDE)
        ImageDraw.Draw(sheet).rectangle(box, outline="red")
        ImageDraw.Draw(sheet).text((corner[0] + 8, corner[1] + 8), "unreadable", fill="red")
        return
    sheet.paste(ImageOps.contain(small, (_SIDE, _SIDE)), corner)


def _said(caption: Path) -> str:
    try:
        return read_text(caption)
    except ConfigError:
        return "(no caption)"
