"""What is wrong with a folder of captioned images, and how to mend it.

    python -m finetune doctor FOLDER [--resolution PX] [--sheet FILE.png]

A fault is what training refuses, or learns wrongly from; a remark is what may be meant so.
"""

import argparse
import hashlib
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image

from configs.checks.captions import CAPTION, SUFFIXES, CaptionedFile, open_image, pairs
from configs.checks.prompts import TRIGGER, read_text
from configs.errors import ConfigError
from finetune.sheet import save_sheet

_FEWEST = 5
_ORIENTATION = 0x0112
_MODES = {
    "RGBA": "its transparency would be dropped; put it on a background",
    "LA": "its transparency would be dropped; put it on a background",
    "P": "its colours are a palette's",
    "CMYK": "its colours are a printer's",
    "L": "it is grey, which the LoRA would learn",
    "1": "it is black and white, which the LoRA would learn",
    "I;16": "its 16 bits would be cut off at white",
    "I": "its 32 bits would be cut off at white",
}


@dataclass(frozen=True, kw_only=True)
class DatasetProblem:
    """What is amiss with a file (or the folder), and the mend."""

    level: Literal["fault", "remark"]
    name: str
    said: str
    mend: str

    def __str__(self) -> str:
        return f"{self.level:6}  {self.name}: {self.said}; mend: {self.mend}"


def main(arguments: list[str]) -> int:
    """Examine a folder; 0 where it has no fault, 1 where it has."""
    parser = argparse.ArgumentParser(
        prog="python -m finetune doctor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder of images, NAME.png with NAME.txt")
    parser.add_argument("--resolution", type=int, default=512, help="the smallest of the config")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="write all images as one PNG")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        raise ConfigError(f"{options.folder}: no such folder")
    findings = list(examine(options.folder, resolution=options.resolution))
    for finding in findings:
        print(finding)
    faults = sum(finding.level == "fault" for finding in findings)
    found = pairs(options.folder)
    if options.sheet:
        save_sheet(found, options.sheet)
    counts = f"{len(found)} images, {faults} faults, {len(findings) - faults} remarks"
    print(f"{options.folder}: {counts}", file=sys.stderr)
    return int(faults > 0)


def examine(folder: Path, *, resolution: int) -> Iterator[DatasetProblem]:
    """All that is amiss with a folder of captioned images, file by file."""
    found = pairs(folder)
    yield from _folder(folder, found)
    seen: dict[str, Path] = {}
    for pair in found:
        yield from _image(pair.image, seen, resolution)
        yield from _caption(pair, found)


def _folder(folder: Path, found: list[CaptionedFile]) -> Iterator[DatasetProblem]:
    if len(found) < _FEWEST:
        yield DatasetProblem(
            level="fault",
            name=str(folder),
            said=f"{len(found)} images are too few to tell the subject from its surroundings",
            mend=f"add some: {_FEWEST} at least, 10 to 20 are better, each from another side",
        )
    captions = {pair.caption for pair in found}
    for file in sorted(folder.iterdir()):
        if file.suffix == CAPTION and file not in captions:
            yield DatasetProblem(
                level="fault",
                name=file.name,
                said="a caption without an image",
                mend="give it the name of its image, or remove it",
            )
        elif file.is_file() and file.suffix != CAPTION and file.suffix.lower() not in SUFFIXES:
            kinds = " ".join(SUFFIXES)
            yield DatasetProblem(
                level="remark",
                name=file.name,
                said="neither an image that is read nor a caption",
                mend=f"save an image as one of {kinds}; remove anything else",
            )


def _image(file: Path, seen: dict[str, Path], resolution: int) -> Iterator[DatasetProblem]:
    try:
        image = open_image(file)
    except ConfigError as error:
        said = str(error).removeprefix(f"{file}: ").partition(";")[0]
        yield DatasetProblem(
            level="fault", name=file.name, said=said, mend="save it again, or remove it"
        )
        return
    if math.sqrt(image.width * image.height) < resolution:
        yield DatasetProblem(
            level="fault",
            name=file.name,
            said=f"{image.width} x {image.height} px, less than {resolution} x {resolution}",
            mend="find a larger one: nothing is enlarged, and enlarging by hand teaches blur",
        )
    if image.mode != "RGB":
        said = _MODES.get(image.mode, "it is not RGB")
        yield DatasetProblem(
            level="fault",
            name=file.name,
            said=f"mode {image.mode}: {said}",
            mend="save it as RGB with 8 bits a channel",
        )
    if image.getexif().get(_ORIENTATION, 1) != 1:
        yield DatasetProblem(
            level="remark",
            name=file.name,
            said="turned by a tag of the camera, which not every program heeds",
            mend="save it turned, without the tag",
        )
    yield from _double(file, image, seen)


def _double(file: Path, image: Image.Image, seen: dict[str, Path]) -> Iterator[DatasetProblem]:
    """An image of the same pixels as one before, whatever the files are called or packed."""
    pixels = image.convert("RGB")
    said = f"{pixels.size}".encode() + pixels.tobytes()
    first = seen.setdefault(hashlib.sha256(said).hexdigest(), file)
    if first != file:
        yield DatasetProblem(
            level="fault",
            name=file.name,
            said=f"the same picture as {first.name}, which counts twice then",
            mend="remove one of them, with its caption",
        )


def _caption(pair: CaptionedFile, found: list[CaptionedFile]) -> Iterator[DatasetProblem]:
    file = pair.caption
    twins = [other.image.name for other in found if other.caption == file]
    if twins[0] != pair.image.name:
        yield DatasetProblem(
            level="fault",
            name=pair.image.name,
            said=f"shares the caption {file.name} with {twins[0]}",
            mend="rename it, and write a caption of its own",
        )
        return
    if not file.is_file():
        yield DatasetProblem(
            level="fault",
            name=pair.image.name,
            said="has no caption",
            mend=f"write {file.name}: one line that says what is to be seen, with {TRIGGER}",
        )
        return
    try:
        text = read_text(file)
    except ConfigError as error:
        said, _, mend = str(error).removeprefix(f"{file}: ").partition("; ")
        yield DatasetProblem(level="fault", name=file.name, said=said, mend=mend)
        return
    if not text:
        yield DatasetProblem(
            level="fault",
            name=file.name,
            said="is empty",
            mend=f"write one line that says what is to be seen, with {TRIGGER}",
        )
    elif TRIGGER not in text:
        yield DatasetProblem(
            level="fault",
            name=file.name,
            said=f"does not hold {TRIGGER}: its image would not be learned as the subject",
            mend=f"put {TRIGGER} where the subject is named",
        )
