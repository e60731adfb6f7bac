"""The images of a fine-tuning: found in folders, with their captions, masks and repeats.

A caption is a text file of the image's name (.txt or .caption), or a row of a table
(metadata.jsonl or metadata.csv, with file_name and text) in the image's folder or in one above.
"""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
# A mask may differ by this much from the shape of its image: sizes are rounded.
_SAME_SHAPE = 0.02


@dataclass(frozen=True, kw_only=True)
class CaptionedFile:
    """An image, the files that hold its caption (one, in a sound data set), and its mask.

    `name` is its path in the data set's folder; `row` is the caption if a table holds it.
    """

    name: str
    image: Path
    captions: tuple[Path, ...]
    row: str | None = None
    mask: Path | None = None
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
    regularisation: list[CaptionedFile]
    held_out: list[CaptionedFile]


def image_set(config: Finetune) -> ImageSet:
    """Find the images of a config; raise `ConfigError` as `captioned_files` does.

    The images held out of `data.folder` are those whose names have the smallest hashes: the same
    for every seed, and mostly the same after an image is added.
    """
    data, count, regular = config.data, config.validation.held_out, config.data.regularisation
    assert data.folder is not None
    apart = [Path(each) for each in (data.masks, regular) if each]
    found = captioned_files(Path(data.folder), data.repeats, apart=apart)
    if data.masks:
        found = [replace(each, mask=_mask(each.name, Path(data.masks))) for each in found]
    if 0 < len(found) <= count:
        raise ConfigError(
            f"validation.held_out {count}: {data.folder} has {len(found)} images, so none would be "
            "trained on; hold out fewer"
        )
    hashed = sorted(found, key=lambda each: hashlib.sha256(each.name.encode()).digest())
    names = {each.name for each in hashed[:count]}
    return ImageSet(
        training=[each for each in found if each.name not in names],
        regularisation=captioned_files(Path(data.regularisation), {})
        if data.regularisation
        else [],
        held_out=[each for each in found if each.name in names],
    )


def captioned_files(
    folder: Path, repeats: Mapping[str, int], *, apart: Sequence[Path] = ()
) -> list[CaptionedFile]:
    """Return the images of a folder and of its sub-folders, sorted by name.

    The repeats of a sub-folder are those of `repeats`, or else the number that its name begins
    with (`10_dog`). Hidden folders and those `apart` are left out. Raise `ConfigError` for a
    sub-folder without repeats, and for an unreadable table.
    """
    without = {each.resolve() for each in apart}
    unknown, found = set(repeats), list[CaptionedFile]()
    for place in [folder, *sorted(each for each in folder.rglob("*") if each.is_dir())]:
        name = place.relative_to(folder)
        above = {(folder / each).resolve() for each in (name, *name.parents)[: len(name.parts)]}
        images = _images(place)
        if above & without or any(part[0] == "." for part in name.parts) or not images:
            continue
        unknown.discard(name.as_posix())
        number = re.match(r"(\d+)_", "1_" if place == folder else place.name)
        count = repeats.get(name.as_posix(), int(number[1]) if number else None)
        if count is None:
            raise ConfigError(
                f"{place}: a sub-folder of images that may be meant or not; rename it to "
                f"1_{name.name}, or set data.repeats.{name.as_posix()} if it is in data.folder "
                "(1: as often as others; 0: never)"
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
            f"{file}: row {len(found) + 1} is no file_name with its text ({error!r}); mend it"
        ) from None
    return found


def _captioned(image: Path, name: Path, row: tuple[Path, str] | None, count: int) -> CaptionedFile:
    files = [image.with_suffix(suffix) for suffix in CAPTIONS]
    captions = [*(file for file in files if file.is_file()), *(row[:1] if row else ())]
    text, path = row[1] if row else None, name.as_posix()
    return CaptionedFile(name=path, image=image, captions=(*captions,), row=text, repeats=count)


def _mask(name: str, folder: Path) -> Path:
    files = [(folder / name).with_suffix(suffix) for suffix in IMAGE_SUFFIXES]
    return next((file for file in files if file.is_file()), files[0])


def check_dataset(config: Finetune) -> None:
    """Raise `ConfigError` for an image that lacks a caption or a mask, or cannot be decoded."""
    found = image_set(config)
    used = {config.data.folder: found.training, config.data.regularisation: found.regularisation}
    for folder, images in used.items():
        if folder and not images:
            kinds = " ".join(IMAGE_SUFFIXES)
            raise ConfigError(f"{folder}: contains no images; add some (any of {kinds})")
    for images in vars(found).values():
        image_of = {each.image.with_suffix(""): each.image for each in images}
        for each in images:
            if problem := caption_problem(each, image_of[each.image.with_suffix("")]):
                raise ConfigError(
                    f"{each.image}: {problem} (for all problems: "
                    f"ditbench check {config.data.folder})"
                )
            fill_trigger(each.text(), config.data.trigger)
            open_image(each.image)
            check_mask(each)


def check_mask(pair: CaptionedFile) -> None:
    """Raise `ConfigError` if an image should have a mask, and has none that can be used."""
    from PIL import ImageOps

    if pair.mask is None:
        return
    if not pair.mask.is_file():
        raise ConfigError(f"{pair.mask}: no such mask; draw it, white where {pair.name} counts")
    mask, image = (ImageOps.exif_transpose(open_image(file)) for file in (pair.mask, pair.image))
    if abs(mask.width * image.height / (mask.height * image.width) - 1) > _SAME_SHAPE:
        raise ConfigError(
            f"{pair.mask}: {mask.width} x {mask.height} px, another shape than its image of "
            f"{image.width} x {image.height}; draw it over the image"
        )
    if not mask.convert("L").getbbox():
        raise ConfigError(f"{pair.mask}: black, so that its image would not count; remove both")


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
