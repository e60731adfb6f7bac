"""Check a folder of captioned images and say how to fix each problem.

    ditbench finetune check-data FOLDER [--trigger WORD] [--resolution PX] [--sheet FILE.png]

A fault makes training fail or teaches it something wrong; a remark may be intended.
"""

import contextlib
import hashlib
import math
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image, ImageDraw, ImageFont, ImageOps

from configs.checks.captions import TRIGGER, open_image
from configs.checks.dataset import (
    CAPTIONS,
    TABLES,
    CaptionedFile,
    caption_problem,
    captioned_files,
    fitted_image,
)
from configs.disk import IMAGE_SUFFIXES, replacing
from configs.errors import ConfigError
from configs.terminal import command_parser, printable

_MIN_IMAGES = 5
_EXIF_ORIENTATION = 0x0112
_MODES = {
    "RGBA": "its transparency would be dropped; put it on a background",
    "LA": "its transparency would be dropped; put it on a background",
    "P": "it has a colour palette",
    "CMYK": "it has printing colours",
    "L": "it is grey, and the LoRA would learn that",
    "1": "it is black and white, and the LoRA would learn that",
    "I;16": "its 16 bits would be clipped to white",
    "I": "its 32 bits would be clipped to white",
}
# Flux was trained on shapes up to about 2:1; a strip is far from them.
_STRIP = 4
_KNOWN = (*CAPTIONS, *IMAGE_SUFFIXES)
# Pixels and colours of the contact sheet, and characters in a line.
_SIDE, _GAP, _COLUMNS, _ROW, _LINES, _LINE = 240, 24, 5, 17, 5, 36
_COLOURS = {"fault": "#c62828", "remark": "#ef8e00"}


@dataclass(frozen=True, kw_only=True)
class DatasetProblem:
    """A problem of a file (or of the folder), and after a semicolon how to fix it."""

    level: Literal["fault", "remark"]
    name: str
    text: str

    def __str__(self) -> str:
        return printable(f"{self.level:6}  {self.name}: {self.text.replace('; ', '; fix: ', 1)}")


def main(arguments: list[str]) -> int:
    """Check a folder; return 1 if it has a fault, else 0."""
    parser = command_parser("finetune check-data", __doc__)
    parser.add_argument("folder", type=Path, help="folder of images with captions")
    parser.add_argument("--trigger", default=TRIGGER, help="word that captions may hold instead")
    parser.add_argument("--resolution", type=int, default=512, help="smallest of the config")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="write a contact sheet (PNG)")
    options = parser.parse_args(arguments)
    folder, side, sheet = options.folder, options.resolution, options.sheet
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    if side < 16:
        raise ConfigError(f"--resolution {side}: the smallest size of an image is 16")
    if sheet and (sheet.suffix != ".png" or not sheet.parent.is_dir()):
        raise ConfigError(f"--sheet {sheet}: name a file that ends in .png, in an existing folder")
    images = captioned_files(folder, {})
    problems = list(examine(folder, images, resolution=side, trigger=options.trigger))
    for problem in problems:
        print(problem)
    if sheet:
        save_sheet(images, sheet, problems, side)
    faults = sum(problem.level == "fault" for problem in problems)
    counts = f"{len(images)} images, {faults} faults, {len(problems) - faults} remarks"
    print(f"{folder}: {counts}", file=sys.stderr)
    return int(faults > 0)


def examine(
    folder: Path, images: Sequence[CaptionedFile], *, resolution: int, trigger: str
) -> Iterator[DatasetProblem]:
    """Yield every problem of a folder of captioned images, file by file."""
    if len(images) < _MIN_IMAGES:
        text = f"{len(images)} images are too few to tell the subject from its surroundings; add "
        text += f"images: at least {_MIN_IMAGES}, better 10 to 20, each from a different angle"
        yield _fault(str(folder), text)
    image_of = {each.image.with_suffix(""): each.image for each in images}
    for file in sorted(file for place in {p.parent for p in image_of} for file in place.iterdir()):
        if file.suffix in CAPTIONS and file.with_suffix("") not in image_of:
            text = "a caption without an image; rename it to match its image, or remove it"
            yield _fault(file.name, text)
        elif file.is_file() and file.suffix.lower() not in _KNOWN and file.name not in TABLES:
            text = f"save images as one of {' '.join(IMAGE_SUFFIXES)}, or remove it"
            yield _remark(file.name, f"neither a readable image format nor a caption; {text}")
    seen: dict[str, str] = {}
    for each in images:
        yield from _check_image(each, seen, resolution)
        yield from _check_caption(each, image_of[each.image.with_suffix("")], trigger)


def _fault(name: str, text: str) -> DatasetProblem:
    return DatasetProblem(level="fault", name=name, text=text)


def _remark(name: str, text: str) -> DatasetProblem:
    return DatasetProblem(level="remark", name=name, text=text)


def _check_image(pair: CaptionedFile, seen: dict[str, str], side: int) -> Iterator[DatasetProblem]:
    try:
        image = open_image(pair.image)
    except ConfigError as error:
        yield _fault(pair.name, str(error).removeprefix(f"{pair.image}: "))
        return
    own = f"{image.width} x {image.height} px"
    if math.sqrt(image.width * image.height) < side:
        text = "use a larger original: images are never enlarged, and enlarged ones teach blur"
        yield _fault(pair.name, f"{own}, less than {side} x {side}; {text}")
    if max(image.size) > _STRIP * min(image.size):
        yield _fault(pair.name, f"a strip of {own}, far from the shapes that Flux knows; crop it")
    if image.mode != "RGB" or "transparency" in image.info:
        about = _MODES.get(image.mode, "its transparency would be dropped")
        yield _fault(pair.name, f"mode {image.mode}: {about}; save it as RGB with 8 bits")
    if getattr(image, "is_animated", False):
        yield _fault(pair.name, "animated, and only its first frame is used; save one frame")
    if image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
        text = "rotated by an EXIF tag, as training does and some programs do not"
        yield _remark(pair.name, f"{text}; rotate the pixels and remove the tag")
    # Equal pixels are duplicates, whatever the names and compression of the files.
    pixels = image.convert("RGB")
    content = f"{pixels.size}".encode() + pixels.tobytes()
    first = seen.setdefault(hashlib.sha256(content).hexdigest(), pair.name)
    if first != pair.name:
        text = f"the same pixels as {first}, which would count twice; remove one of them"
        yield _fault(pair.name, text)


def _check_caption(pair: CaptionedFile, image: Path, trigger: str) -> Iterator[DatasetProblem]:
    if problem := caption_problem(pair, image):
        yield _fault(pair.name, problem)
        return
    try:
        text = pair.text()
    except ConfigError as error:
        yield _fault(pair.name, str(error).removeprefix(f"{pair.caption.parent}/"))
        return
    file = pair.caption.name
    if not text:
        fix = f"write one line that describes the image, with {TRIGGER}"
        yield _fault(pair.name, f"{file} is empty; {fix}")
    elif TRIGGER not in text and trigger not in text:
        fix = f"for a subject, put {TRIGGER} where the caption names it; a style needs none"
        yield _remark(pair.name, f"{file} names no {trigger}; {fix}")


def save_sheet(
    pairs: Sequence[CaptionedFile], file: Path, problems: Sequence[DatasetProblem], side: int
) -> None:
    """Write a contact sheet as a PNG: each image as training sees it, problem and caption.

    The frame is red around an image with a fault, and orange around one with a remark.
    """
    columns, bucket = max(1, min(_COLUMNS, len(pairs))), max(16, min(64, side // 16 * 16))
    across, down = _SIDE + _GAP, _SIDE + _ROW * _LINES + _GAP
    size = (columns * across + _GAP, max(1, -(-len(pairs) // columns)) * down + _GAP)
    sheet, font = Image.new("RGB", size, "white"), ImageFont.load_default(13)
    draw = ImageDraw.Draw(sheet)
    # Faults come last, and so are those that are kept.
    worst = {each.name: each for each in sorted(problems, key=lambda each: each.level == "fault")}
    for number, pair in enumerate(pairs):
        row, column = divmod(number, columns)
        left, top = _GAP + column * across, _GAP + row * down
        problem = worst.get(pair.name)
        colour = _COLOURS[problem.level] if problem else "#d0d0d0"
        try:
            image = fitted_image(pair.image, resolution=side, bucket=bucket)
        except ConfigError:
            image = Image.new("RGB", (_SIDE, _SIDE), "#f5dcdc")
        shown = ImageOps.contain(image, (_SIDE, _SIDE))
        sheet.paste(shown, (left + (_SIDE - shown.width) // 2, top + (_SIDE - shown.height) // 2))
        draw.rectangle((left - 4, top - 4, left + _SIDE + 3, top + _SIDE + 3), None, colour, 4)
        lines = [("black", pair.name)]
        if problem:
            lines += [(colour, line) for line in _wrapped(problem.text.partition(";")[0], 2)]
        with contextlib.suppress(ConfigError):
            lines += [("#555555", line) for line in _wrapped(pair.text(), _LINES - len(lines))]
        for place, (shade, line) in enumerate(lines):
            draw.text((left, top + _SIDE + 6 + _ROW * place), line, shade, font)
    with replacing(file) as stream:
        sheet.save(stream, "PNG")


def _wrapped(text: str, lines: int) -> list[str]:
    return textwrap.wrap(text, _LINE, max_lines=lines, placeholder=" ...")
