"""Check captioned images, and say how to fix each problem.

    ditbench check FOLDER [--trigger WORD] [--resolution PX]
    ditbench check CONFIG.yaml [key=value ...]

A fault makes training fail or teaches it something wrong; a remark may be intended.
"""

import hashlib
import math
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import ImageOps

from configs.checks.captions import TRIGGER, open_image
from configs.checks.dataset import CAPTION, IMAGES, CaptionedFile, caption_problem, image_set
from configs.errors import ConfigError
from configs.load import expect, load, merge, parse_overrides, resolve
from configs.schema import Finetune
from configs.schema.finetune import CaptionedImages
from configs.terminal import command_parser, plural, printable

Level = Literal["fault", "remark"]
Problems = Iterator[tuple[Level, str]]

_MIN_IMAGES = 5


@dataclass(frozen=True, kw_only=True)
class DatasetProblem:
    """A problem of a file (or of the folder), and after a semicolon how to fix it."""

    level: Level
    name: str
    text: str

    def __str__(self) -> str:
        return printable(f"{self.level:6}  {self.name}: {self.text.replace('; ', '; fix: ', 1)}")


def main(arguments: list[str]) -> int:
    """Check a folder, or the folders of a config; return 1 if there is a fault, else 0."""
    parser = command_parser("check", __doc__)
    parser.add_argument("source", type=Path, metavar="FOLDER|CONFIG")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--trigger", help="data.trigger, for a folder")
    parser.add_argument("--resolution", type=int, default=512, help="its smallest resolution")
    config = _config(parser.parse_intermixed_args(arguments))
    uses = image_set(config)
    images = sorted([*uses.training, *uses.held_out], key=lambda each: each.name)
    problems = [*examine(config, images)]
    if len(uses.training) < _MIN_IMAGES:
        text = f"{len(uses.training)} images are too few to tell subject from surroundings; "
        text += f"add images: at least {_MIN_IMAGES}, better 10 to 20, each from a different angle"
        problems.insert(0, DatasetProblem(level="fault", name=str(config.data.folder), text=text))
    for problem in problems:
        print(problem)
    faults = sum(problem.level == "fault" for problem in problems)
    counts = {"image": len(images), "fault": faults, "remark": len(problems) - faults}
    told = ", ".join(plural(count, noun) for noun, count in counts.items())
    print(f"{config.data.folder}: {told}", file=sys.stderr)
    return int(faults > 0)


def _config(options: Namespace) -> Finetune:
    """Return the config that is named, or one for the folder that is named."""
    source, changes = options.source, options.overrides
    if source.suffix in (".yaml", ".yml"):
        config = expect(load(source, changes), Finetune, source=source)
    else:
        side = options.resolution
        own = {"folder": str(source), "trigger": options.trigger or TRIGGER, "resolutions": [side]}
        own["bucket"] = max(16, min(64, side // 16 * 16))
        tree = {"kind": "finetune", "flux": {"folder": "."}, "data": own}
        tree = merge(tree, {"sample.prompts": ["a"]} | parse_overrides(changes))
        config = expect(resolve(tree, source="check-data"), Finetune, source=source)
    if not Path(config.data.folder or "").is_dir():
        raise ConfigError(f"{config.data.folder}: no such folder; name the folder of the images")
    return config


def examine(config: Finetune, images: Sequence[CaptionedFile]) -> Iterator[DatasetProblem]:
    """Yield every problem of images, file by file."""
    # By the hash of its pixels, the first image that has them.
    seen = dict[str, str]()
    image_of = {each.image.with_suffix(""): each.image for each in images}
    for name, level, text in _check_files(images):
        yield DatasetProblem(level=level, name=name, text=text)
    for each in images:
        for level, text in _check_image(each, config.data, seen):
            yield DatasetProblem(level=level, name=each.name, text=text)
        other = image_of[each.image.with_suffix("")]
        for level, text in _check_caption(each, other, config.data.trigger):
            yield DatasetProblem(level=level, name=each.name, text=text)


def _check_files(images: Sequence[CaptionedFile]) -> Iterator[tuple[str, Level, str]]:
    """Yield the files beside images that belong to none."""
    stems = {each.image.with_suffix("") for each in images}
    for file in sorted(file for folder in {p.parent for p in stems} for file in folder.iterdir()):
        if file.suffix == CAPTION and file.with_suffix("") not in stems:
            text = "a caption without an image; rename it to match its image, or remove it"
            yield file.name, "fault", text
        elif file.is_file() and file.suffix.lower() not in (CAPTION, *IMAGES):
            text = f"save images as one of {' '.join(IMAGES)}, or remove it"
            yield file.name, "remark", f"neither a readable image format nor a caption; {text}"


def _check_image(pair: CaptionedFile, data: CaptionedImages, seen: dict[str, str]) -> Problems:
    try:
        opened = open_image(pair.image)
    except ConfigError as error:
        yield "fault", _own_words(error)
        return
    image = ImageOps.exif_transpose(opened)
    (width, height), least = image.size, min(data.resolutions)
    if math.sqrt(width * height) < least:
        text = "use a larger original: images are never enlarged, and enlarged ones teach blur"
        yield "fault", f"{width} x {height} px, less than {least} x {least}; {text}"
    if opened.mode != "RGB" or "transparency" in opened.info:
        text = "its colours would be converted, and its transparency dropped"
        yield "fault", f"mode {opened.mode}: {text}; save it as RGB with 8 bits per channel"
    if getattr(opened, "is_animated", False):
        yield "fault", "animated, and only the first frame is used; save the frame that you want"
    # Equal pixels are duplicates, whatever the names and compression of the files.
    content = f"{image.size}".encode() + image.convert("RGB").tobytes()
    first = seen.setdefault(hashlib.sha256(content).hexdigest(), pair.name)
    if first != pair.name:
        yield "fault", f"the same pixels as {first}, which would count twice; remove one of them"


def _check_caption(pair: CaptionedFile, image: Path, trigger: str | None) -> Problems:
    if problem := caption_problem(pair, image):
        yield "fault", problem
        return
    file = pair.caption.name
    try:
        text = pair.text()
    except ConfigError as error:
        yield "fault", f"{file}: {_own_words(error)}"
        return
    if TRIGGER in text and not trigger:
        yield "fault", f"{file} has {TRIGGER}, but no trigger word is set; set data.trigger"
    if not text:
        yield "fault", f"{file} is empty; write one line that describes the image, with {TRIGGER}"
    elif TRIGGER not in text and (not trigger or trigger not in text):
        fix = f"for a subject, put {TRIGGER} where the caption names it; a style needs none"
        yield "remark", f"{file} names no {TRIGGER}; {fix}"


def _own_words(error: ConfigError) -> str:
    """Return the text of an error without the path that it begins with."""
    return str(error).partition(": ")[2]
