"""Check captioned images, and say how to fix each problem.

    ditbench check FOLDER [--trigger WORD] [--resolution PX] [--sheet FILE.png]
    ditbench check CONFIG.yaml [key=value ...] [--sheet FILE.png]

A fault makes training fail or teaches it something wrong; a remark may be intended.
"""

import contextlib
import hashlib
import math
import sys
import textwrap
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from PIL import Image, ImageDraw, ImageFont, ImageOps

from configs.checks import dataset
from configs.checks.captions import TRIGGER, open_image
from configs.checks.dataset import CaptionedFile, fitted_size
from configs.disk import IMAGE_SUFFIXES, replacing
from configs.errors import ConfigError
from configs.load import expect, load, merge, parse_overrides, resolve
from configs.schema import Finetune
from configs.schema.finetune import CaptionedImages
from configs.terminal import command_parser, printable

Level = Literal["fault", "remark"]
Problems = Iterator[tuple[Level, str]]

_MIN_IMAGES = 5
_EXIF_ORIENTATION = 0x0112
_MODES = {
    "P": "it has a colour palette",
    "CMYK": "it has printing colours",
    "LAB": "it has the colours of LAB",
    "L": "it is grey, and the LoRA would learn that",
    "1": "it is black and white, and the LoRA would learn that",
    "I;16": "its 16 bits would be clipped to white",
    "I": "its 32 bits would be clipped to white",
}
# Flux was trained on shapes up to about 2:1; a strip is far from them.
_STRIP = 4
# The share of an image whose loss by cropping is worth a remark.
_CROP = 0.1
# Of 64 bits of a perceptual hash, at most so many differ between near duplicates, and their mean
# colours by no more than this in a channel of 0..255.
_NEAR_BITS, _NEAR_COLOUR = 4, 24
# Pixels and colours of the contact sheet, and characters in a line.
_SIDE, _GAP, _COLUMNS, _ROW, _LINES, _LINE = 240, 24, 5, 17, 5, 36
_COLOURS = {"fault": "#c62828", "remark": "#ef8e00"}


@dataclass(frozen=True, kw_only=True)
class DatasetProblem:
    """A problem of a file (or of the folder), and after a semicolon how to fix it."""

    level: Level
    name: str
    text: str

    def __str__(self) -> str:
        return printable(f"{self.level:6}  {self.name}: {self.text.replace('; ', '; fix: ', 1)}")


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The readable images so far: their sizes, images by pixels, and what each looks like."""

    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    pixels: dict[str, str] = field(default_factory=dict)
    looks: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)


def main(arguments: list[str]) -> int:
    """Check a folder, or the folders of a config; return 1 if there is a fault, else 0."""
    parser = command_parser("check", __doc__)
    parser.add_argument("source", type=Path, metavar="FOLDER|CONFIG")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--trigger", help="data.trigger, for a folder")
    parser.add_argument("--resolution", type=int, default=512, help="its smallest resolution")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="write a contact sheet (PNG)")
    options = parser.parse_intermixed_args(arguments)
    sheet: Path | None = options.sheet
    if sheet and (sheet.suffix != ".png" or not sheet.parent.is_dir()):
        raise ConfigError(f"--sheet {sheet}: name a file that ends in .png, in an existing folder")
    config = _config(options)
    uses = dataset.image_set(config)
    images = sorted([*uses.training, *uses.held_out], key=lambda each: each.name)
    seen = _Seen()
    problems = [*examine(config, images, seen)]
    if len(uses.training) < _MIN_IMAGES:
        text = f"{len(uses.training)} images are too few to tell subject from surroundings; "
        text += f"add images: at least {_MIN_IMAGES}, better 10 to 20, each from a different angle"
        problems.insert(0, DatasetProblem(level="fault", name=str(config.data.folder), text=text))
    for problem in problems:
        print(problem)
    if sheet:
        save_sheet(images, sheet, config.data, problems)
    print(*_buckets(config, uses.training, seen), sep="\n", file=sys.stderr)
    faults = sum(problem.level == "fault" for problem in problems)
    counts = f"{len(images)} images, {faults} faults, {len(problems) - faults} remarks"
    print(f"{config.data.folder}: {counts}", file=sys.stderr)
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


def examine(
    config: Finetune, images: Sequence[CaptionedFile], seen: _Seen
) -> Iterator[DatasetProblem]:
    """Yield every problem of images, file by file."""
    excess = _excess_tokens(config)
    image_of = {each.image.with_suffix(""): each.image for each in images}
    for name, level, text in _check_files(images):
        yield DatasetProblem(level=level, name=name, text=text)
    for each in images:
        for level, text in _check_image(each, config.data, seen):
            yield DatasetProblem(level=level, name=each.name, text=text)
        other = image_of[each.image.with_suffix("")]
        for level, text in _check_caption(each, other, config.data.trigger, excess):
            yield DatasetProblem(level=level, name=each.name, text=text)


def _check_files(images: Sequence[CaptionedFile]) -> Iterator[tuple[str, Level, str]]:
    """Yield the files beside images that belong to none."""
    stems = {each.image.with_suffix("") for each in images}
    for file in sorted(file for folder in {p.parent for p in stems} for file in folder.iterdir()):
        if file.suffix in dataset.CAPTIONS and file.with_suffix("") not in stems:
            text = "a caption without an image; rename it to match its image, or remove it"
            yield file.name, "fault", text
        elif file.name in dataset.TABLES:
            for name in dataset.read_table(file):
                if not (file.parent / name).is_file():
                    yield file.name, "fault", f"has a row for {name}, which is not there; remove it"
        elif file.is_file() and file.suffix.lower() not in (*dataset.CAPTIONS, *IMAGE_SUFFIXES):
            text = f"save images as one of {' '.join(IMAGE_SUFFIXES)}, or remove it"
            yield file.name, "remark", f"neither a readable image format nor a caption; {text}"


def _check_image(pair: CaptionedFile, data: CaptionedImages, seen: _Seen) -> Problems:
    try:
        opened = open_image(pair.image)
        image = ImageOps.exif_transpose(opened)
    except ConfigError as error:
        yield "fault", _own_words(error)
        return
    yield from _check_size(image, data)
    seen.sizes[pair.name] = image.size
    has_alpha = "A" in opened.mode[1:] or "transparency" in opened.info
    if opened.mode != "RGB" or has_alpha:
        text = "its transparency would be dropped; put it on a background, and"
        text = text if has_alpha else f"{_MODES.get(opened.mode, 'it is not RGB')};"
        yield "fault", f"mode {opened.mode}: {text} save it as RGB with 8 bits per channel"
    if getattr(opened, "is_animated", False):
        yield "fault", "animated, and only the first frame is used; save the frame that you want"
    if opened.getexif().get(_EXIF_ORIENTATION, 1) != 1:
        text = "rotated by an EXIF tag, as training does and some programs do not"
        yield "remark", f"{text}; rotate the pixels and remove the tag"
    # Equal pixels are duplicates, whatever the names and compression of the files.
    content = f"{image.size}".encode() + image.convert("RGB").tobytes()
    first = seen.pixels.setdefault(hashlib.sha256(content).hexdigest(), pair.name)
    own = _difference_hash(image), _mean_colour(image)
    near = [name for name, other in seen.looks.items() if _is_near(own, other)]
    seen.looks[pair.name] = own
    if first != pair.name:
        yield "fault", f"the same pixels as {first}, which would count twice; remove one of them"
    elif near:
        yield "remark", f"looks like {near[0]}, which would count twice; keep the better one"


def _check_size(image: Image.Image, data: CaptionedImages) -> Problems:
    (width, height), smallest, largest = image.size, min(data.resolutions), max(data.resolutions)
    own = f"{width} x {height} px"
    if math.sqrt(width * height) < smallest:
        text = "use a larger original: images are never enlarged, and enlarged ones teach blur"
        yield "fault", f"{own}, less than {smallest} x {smallest}; {text}"
    elif math.sqrt(width * height) < largest:
        text = "so that its own size counts more than once; use a larger original"
        yield "remark", f"{own}, less than {largest} x {largest}, {text}"
    if max(width, height) > _STRIP * min(width, height):
        yield "fault", f"a strip of {own}, far from the shapes that Flux knows; crop it"
    across, down = fitted_size(width, height, resolution=smallest, bucket=data.bucket)
    lost = 1 - min(across / down, width / height) / max(across / down, width / height)
    if lost > _CROP:
        text = f"trained on at {across} x {down} px, which cuts off {lost:.0%} of it"
        yield "remark", f"{text}; crop it to keep what matters, or set a smaller data.bucket"


def _difference_hash(image: Image.Image) -> int:
    """Return 64 bits: whether each of 8 x 8 grey cells is darker than its right neighbour."""
    cells = image.convert("L").resize((9, 8), Image.Resampling.BOX).tobytes()
    places = [row * 9 + column for row in range(8) for column in range(8)]
    return sum((cells[k] < cells[k + 1]) << bit for bit, k in enumerate(places))


def _mean_colour(image: Image.Image) -> tuple[int, ...]:
    return tuple(image.convert("RGB").resize((1, 1), Image.Resampling.BOX).tobytes())


def _is_near(one: tuple[int, tuple[int, ...]], other: tuple[int, tuple[int, ...]]) -> bool:
    apart = max(abs(a - b) for a, b in zip(one[1], other[1], strict=True))
    return (one[0] ^ other[0]).bit_count() <= _NEAR_BITS and apart <= _NEAR_COLOUR


def _check_caption(
    pair: CaptionedFile, image: Path, trigger: str | None, excess: Callable[[str], int]
) -> Problems:
    if problem := dataset.caption_problem(pair, image):
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
    if (more := excess(text.replace(TRIGGER, trigger or ""))) > 0:
        yield "fault", f"the last {more} tokens of {file} would be cut off; shorten it"


def _own_words(error: ConfigError) -> str:
    """Return the text of an error without the path that it begins with."""
    return str(error).partition(": ")[2]


def _excess_tokens(config: Finetune) -> Callable[[str], int]:
    """Return a function: by how many tokens of T5 a text is too long, if the model is there."""
    folder = Path(config.flux.folder or "") / "tokenizer_2"
    if not folder.is_dir():
        return lambda text: 0
    # Imported late, because it takes seconds.
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    limit = config.flux.text_tokens
    return lambda text: len(tokenizer(text, verbose=False).input_ids) - limit


def _buckets(config: Finetune, images: Sequence[CaptionedFile], seen: _Seen) -> Iterator[str]:
    """Yield a line per bucket: how many items it has, and how often an epoch shows each."""
    data, batch = config.data, config.train.global_batch
    counts = Counter(
        fitted_size(*seen.sizes[each.name], resolution=size, bucket=data.bucket)
        for each in images
        for size in data.resolutions * (each.repeats if each.name in seen.sizes else 0)
    )
    for (width, height), count in sorted(counts.items()):
        padded = math.ceil(count / batch) * batch / count
        views = f"1 view of each per epoch; by ai-toolkit {padded:.2f} at batch {batch}"
        yield f"{width:5} x {height:4} px: {count:3} images with repeats, {views}"


def save_sheet(
    pairs: list[CaptionedFile], file: Path, data: CaptionedImages, problems: list[DatasetProblem]
) -> None:
    """Write a contact sheet as a PNG: each image as training sees it, problem and caption.

    The frame is red around an image with a fault, and orange around one with a remark.
    """
    columns, side = max(1, min(_COLUMNS, len(pairs))), data.resolutions[0]
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
            image = dataset.fitted_image(pair.image, resolution=side, bucket=data.bucket)
            title = f"{pair.name}  {image.width} x {image.height}"
        except ConfigError:
            image, title = Image.new("RGB", (_SIDE, _SIDE), "#f5dcdc"), pair.name
        shown = ImageOps.contain(image, (_SIDE, _SIDE))
        sheet.paste(shown, (left + (_SIDE - shown.width) // 2, top + (_SIDE - shown.height) // 2))
        draw.rectangle((left - 4, top - 4, left + _SIDE + 3, top + _SIDE + 3), None, colour, 4)
        lines = [("black", title)]
        if problem:
            lines += [(colour, line) for line in _wrapped(problem.text.partition(";")[0], 2)]
        with contextlib.suppress(ConfigError, OSError):
            lines += [("#555555", line) for line in _wrapped(pair.text(), _LINES - len(lines))]
        for place, (shade, line) in enumerate(lines):
            draw.text((left, top + _SIDE + 6 + _ROW * place), line, shade, font)
    with replacing(file) as stream:
        sheet.save(stream, "PNG")


def _wrapped(text: str, lines: int) -> list[str]:
    return textwrap.wrap(text, _LINE, max_lines=lines, placeholder=" ...")
