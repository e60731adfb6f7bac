"""Check a folder of captioned images and say how to fix each problem.

    ditbench finetune check-data FOLDER [--resolution PX] [--sheet FILE.png]

A fault makes training fail or teaches it something wrong; a remark may be intended.
"""

import hashlib
import math
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image, ImageDraw, ImageOps

from configs.checks.captions import TRIGGER, open_image, read_text
from configs.checks.dataset import CAPTIONS, CaptionedFile, captioned_files
from configs.disk import IMAGE_SUFFIXES, replacing
from configs.errors import ConfigError
from configs.terminal import command_parser

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
# Pixels of the contact sheet, and characters in a line of its captions.
_SIDE, _TEXT, _GAP, _COLUMNS = 240, 54, 8, 5
_LINE = 38


@dataclass(frozen=True, kw_only=True)
class DatasetProblem:
    """A problem of a file (or of the folder), and how to fix it."""

    level: Literal["fault", "remark"]
    name: str
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.level:6}  {self.name}: {self.problem}; fix: {self.fix}"


def main(arguments: list[str]) -> int:
    """Check a folder; return 1 if it has a fault, else 0."""
    parser = command_parser("finetune check-data", __doc__)
    parser.add_argument("folder", type=Path, help="folder of images, NAME.png with NAME.txt")
    parser.add_argument(
        "--resolution", type=int, default=512, help="smallest resolution of the config"
    )
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="write a contact sheet (PNG)")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        raise ConfigError(f"{options.folder}: no such folder")
    problems = list(examine(options.folder, resolution=options.resolution))
    for problem in problems:
        print(problem)
    faults = sum(problem.level == "fault" for problem in problems)
    images = captioned_files(options.folder, {})
    if options.sheet:
        save_sheet(images, options.sheet)
    counts = f"{len(images)} images, {faults} faults, {len(problems) - faults} remarks"
    print(f"{options.folder}: {counts}", file=sys.stderr)
    return int(faults > 0)


def examine(folder: Path, *, resolution: int) -> Iterator[DatasetProblem]:
    """Yield every problem of a folder of captioned images, file by file."""
    found = captioned_files(folder, {})
    yield from _check_folder(folder, found)
    seen: dict[str, Path] = {}
    for pair in found:
        yield from _check_image(pair.image, seen, resolution)
        yield from _check_caption(pair, found)


def _fault(name: str, problem: str, fix: str) -> DatasetProblem:
    return DatasetProblem(level="fault", name=name, problem=problem, fix=fix)


def _remark(name: str, problem: str, fix: str) -> DatasetProblem:
    return DatasetProblem(level="remark", name=name, problem=problem, fix=fix)


def _check_folder(folder: Path, found: list[CaptionedFile]) -> Iterator[DatasetProblem]:
    if len(found) < _MIN_IMAGES:
        yield _fault(
            str(folder),
            f"{len(found)} images are too few to tell the subject from its surroundings",
            f"add images: at least {_MIN_IMAGES}, better 10 to 20, each from a different angle",
        )
    captions = {pair.caption for pair in found}
    for file in sorted(folder.iterdir()):
        if file.suffix in CAPTIONS and file not in captions:
            yield _fault(
                file.name,
                "a caption without an image",
                "rename it to match its image, or remove it",
            )
        elif (
            file.is_file()
            and file.suffix not in CAPTIONS
            and file.suffix.lower() not in IMAGE_SUFFIXES
        ):
            yield _remark(
                file.name,
                "neither a readable image format nor a caption",
                f"save images as one of {' '.join(IMAGE_SUFFIXES)}; remove other files",
            )


def _check_image(file: Path, seen: dict[str, Path], resolution: int) -> Iterator[DatasetProblem]:
    try:
        image = open_image(file)
    except ConfigError as error:
        problem = str(error).removeprefix(f"{file}: ").partition(";")[0]
        yield _fault(file.name, problem, "save it again, or remove it")
        return
    if math.sqrt(image.width * image.height) < resolution:
        yield _fault(
            file.name,
            f"{image.width} x {image.height} px, less than {resolution} x {resolution}",
            "use a larger original: images are never enlarged, and enlarged ones teach blur",
        )
    if image.mode != "RGB":
        yield _fault(
            file.name,
            f"mode {image.mode}: {_MODES.get(image.mode, 'it is not RGB')}",
            "save it as RGB with 8 bits per channel",
        )
    if image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
        yield _remark(
            file.name,
            "rotated by an EXIF tag, which some programs ignore",
            "rotate the pixels and remove the tag",
        )
    # Equal pixels are duplicates, whatever the names and compression of the files.
    pixels = image.convert("RGB")
    content = f"{pixels.size}".encode() + pixels.tobytes()
    first = seen.setdefault(hashlib.sha256(content).hexdigest(), file)
    if first != file:
        yield _fault(
            file.name,
            f"the same pixels as {first.name}, which would count twice",
            "remove one of them, with its caption",
        )


def _check_caption(pair: CaptionedFile, found: list[CaptionedFile]) -> Iterator[DatasetProblem]:
    file = pair.caption
    first = next(other.image.name for other in found if other.caption == file)
    if first != pair.image.name:
        yield _fault(
            pair.image.name,
            f"shares the caption {file.name} with {first}",
            "rename it, and write a caption of its own",
        )
        return
    if not file.is_file():
        yield _fault(
            pair.image.name,
            "has no caption",
            f"write {file.name}: one line that describes the image, with {TRIGGER}",
        )
        return
    try:
        text = read_text(file)
    except ConfigError as error:
        problem, _, fix = str(error).removeprefix(f"{file}: ").partition("; ")
        yield _fault(file.name, problem, fix)
        return
    if not text:
        yield _fault(
            file.name, "is empty", f"write one line that describes the image, with {TRIGGER}"
        )
    elif TRIGGER not in text:
        yield _fault(
            file.name,
            f"does not contain {TRIGGER}: its image would not be learned as the subject",
            f"put {TRIGGER} where the caption names the subject",
        )


def save_sheet(pairs: Sequence[CaptionedFile], file: Path) -> None:
    """Write a contact sheet as a PNG: every image above its caption, a faulty one in red."""
    columns = max(1, min(_COLUMNS, len(pairs)))
    rows = max(1, -(-len(pairs) // columns))
    across, down = _SIDE + _GAP, _SIDE + _TEXT + _GAP
    sheet = Image.new("RGB", (columns * across + _GAP, rows * down + _GAP), "white")
    for number, pair in enumerate(pairs):
        row, column = divmod(number, columns)
        left, top = _GAP + column * across, _GAP + row * down
        try:
            image, caption = open_image(pair.image).convert("RGB"), read_text(pair.caption)
        except ConfigError as error:
            image, caption = Image.new("RGB", (_SIDE, _SIDE), "red"), str(error)
        sheet.paste(ImageOps.contain(image, (_SIDE, _SIDE)), (left, top))
        lines = textwrap.wrap(f"{pair.image.name}: {caption}", _LINE)[:4]
        # Pillow's built-in font has Latin letters only.
        text = "\n".join(lines).encode("latin-1", "replace").decode("latin-1")
        ImageDraw.Draw(sheet).text((left, top + _SIDE + 2), text, fill="black")
    with replacing(file) as stream:
        sheet.save(stream, "PNG")
