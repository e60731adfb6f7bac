"""The images of a fine-tuning: found in folders, with their captions and repeats.

A caption is a text file of the image's name (.txt or .caption), or a row of a table
(metadata.jsonl or metadata.csv, with file_name and text) in the image's folder or in one above.
"""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from configs.checks.captions import fill_trigger, open_image, read_text
from configs.disk import IMAGE_SUFFIXES
from configs.errors import ConfigError
from configs.schema import Finetune

if TYPE_CHECKING:
    from PIL.Image import Image

CAPTIONS = (".txt", ".caption")
TABLES = ("metadata.jsonl", "metadata.csv")


@dataclass(frozen=True, kw_only=True)
class CaptionedFile:
    """An image and the files that hold its caption (one, in a sound data set).

    `name` is its path in the data set's folder; `row` is the caption if a table holds it.
    """

    name: str
    image: Path
    captions: tuple[Path, ...]
    row: str | None = None
    repeats: int = 1

    @property
    def caption(self) -> Path:
        """The file that holds the caption, or that has yet to be written."""
        return self.captions[0] if self.captions else self.image.with_suffix(CAPTIONS[0])

    def text(self) -> str:
        """Return the caption; raise `ConfigError` if it cannot be read."""
        return read_text(self.caption) if self.row is None else self.row


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """The images of a config, by use."""

    training: list[CaptionedFile]
    held_out: list[CaptionedFile]


def image_set(config: Finetune) -> ImageSet:
    """Find the images of a config; raise `ConfigError` as `captioned_files` does.

    The images held out of `data.folder` are those whose names have the smallest hashes: the same
    for every seed, and mostly the same after an image is added.
    """
    data, count = config.data, config.validation.held_out
    assert data.folder is not None
    found = captioned_files(Path(data.folder), data.repeats)
    if 0 < len(found) <= count:
        raise ConfigError(
            f"validation.held_out {count}: {data.folder} has {len(found)} images, so none would be "
            "trained on; hold out fewer"
        )
    hashed = sorted(found, key=lambda each: hashlib.sha256(each.name.encode()).digest())
    names = {each.name for each in hashed[:count]}
    return ImageSet(
        training=[each for each in found if each.name not in names],
        held_out=[each for each in found if each.name in names],
    )


def captioned_files(folder: Path, repeats: Mapping[str, int]) -> list[CaptionedFile]:
    """Return the images of a folder and of its sub-folders, sorted by name.

    The repeats of a sub-folder are those of `repeats`, or else the number that its name begins
    with (`10_dog`). Hidden folders are left out. Raise `ConfigError` for a sub-folder without
    repeats, and for an unreadable table.
    """
    unknown, found = set(repeats), list[CaptionedFile]()
    for place in [folder, *sorted(each for each in folder.rglob("*") if each.is_dir())]:
        name = place.relative_to(folder)
        images = _images(place)
        if any(part[0] == "." for part in name.parts) or not images:
            continue
        unknown.discard(name.as_posix())
        number = re.match(r"(\d+)_", "1_" if place == folder else place.name)
        count = repeats.get(name.as_posix(), int(number[1]) if number else None)
        if count is None:
            raise ConfigError(
                f"{place}: it is unclear whether this sub-folder is to be trained on; rename it to "
                f"1_{name.name}, or set data.repeats.{name.as_posix()} (1: as often as others; "
                "0: never)"
            )
        rows = _rows(place, folder) if count else {}
        for image in images if count else ():
            found.append(_captioned(image, image.relative_to(folder), rows.get(image), count))
    if unknown:
        raise ConfigError(f"data.repeats.{min(unknown)}: {folder} has no such folder of images")
    return found


def _images(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file() and file.name[0] != "."
    )


def _rows(place: Path, folder: Path) -> dict[Path, tuple[Path, str]]:
    """Return the tables' captions by image, with the table, of a folder and those above it."""
    above = [folder / each for each in (place / "x").relative_to(folder).parents]
    tables = [each / name for each in above for name in TABLES if (each / name).is_file()]
    return {t.parent / name: (t, text) for t in tables for name, text in read_table(t).items()}


def read_table(file: Path) -> dict[str, str]:
    """Return the captions of a table by `file_name`; raise `ConfigError` for another content."""
    text = read_text(file)
    found: dict[str, str] = {}
    try:
        if file.suffix == ".csv":
            rows: list[Any] = list(csv.DictReader(io.StringIO(text), strict=True))
        else:
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        for row in rows:
            name, caption = row["file_name"], row["text"].strip()
            if found.setdefault(name, caption) != caption:
                raise ValueError(f"another caption of {name}")
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise ConfigError(
            f"{file}: row {len(found) + 1} needs file_name and text ({error!r}); correct it"
        ) from None
    return found


def _captioned(image: Path, name: Path, row: tuple[Path, str] | None, count: int) -> CaptionedFile:
    files = [image.with_suffix(suffix) for suffix in CAPTIONS]
    captions = [*(file for file in files if file.is_file()), *(row[:1] if row else ())]
    text, path = row[1] if row else None, name.as_posix()
    return CaptionedFile(name=path, image=image, captions=(*captions,), row=text, repeats=count)


def check_dataset(config: Finetune) -> None:
    """Raise `ConfigError` for an image that lacks a caption or cannot be decoded."""
    found = image_set(config)
    if not found.training:
        kinds = " ".join(IMAGE_SUFFIXES)
        raise ConfigError(f"{config.data.folder}: contains no images; add some (any of {kinds})")
    images = [*found.training, *found.held_out]
    image_of = {each.image.with_suffix(""): each.image for each in images}
    for each in images:
        if problem := caption_problem(each, image_of[each.image.with_suffix("")]):
            raise ConfigError(
                f"{each.image}: {problem} (for all problems: ditbench check {config.data.folder})"
            )
        fill_trigger(each.text(), config.data.trigger)
        open_image(each.image)


def caption_problem(pair: CaptionedFile, image: Path) -> str | None:
    """Return the problem, with the fix, of an image that has not one caption of its own.

    `image` is the last one of its name, whatever the suffix.
    """
    if image != pair.image:
        return f"shares its caption with {image.name}; rename one"
    if not pair.captions:
        return f"no caption; write {pair.caption.name}: one line that describes the image"
    if len(pair.captions) > 1:
        names = " and ".join(file.name for file in pair.captions)
        return f"has several captions, in {names}; remove all but one"
    return None


def fitted_size(width: int, height: int, *, resolution: int, bucket: int) -> tuple[int, int]:
    """Return the width and height to train an image at: its shape, with the area of `resolution`.

    Both are multiples of `bucket`. Images are never enlarged, so a small image keeps about
    its own area, as in ai-toolkit.
    """
    scale = min(1.0, resolution / math.sqrt(width * height))
    across = max(bucket, round(width * scale / bucket) * bucket)
    down = max(bucket, round(height * scale / bucket) * bucket)
    # Rounding must not exceed the area: memory is planned by the resolution.
    while across * down > resolution**2 and max(across, down) > bucket:
        across, down = (across - bucket, down) if across >= down else (across, down - bucket)
    return across, down


def fitted_image(file: Path, *, resolution: int, bucket: int) -> "Image":
    """Return an image as training sees it: turned by its EXIF tag, scaled, its centre cropped."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(open_image(file)).convert("RGB")
    size = fitted_size(image.width, image.height, resolution=resolution, bucket=bucket)
    return ImageOps.fit(image, size, Image.Resampling.LANCZOS)
