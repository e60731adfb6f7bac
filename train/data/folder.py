"""Image files as a data set: one sub-folder per class, or a flat folder with a csv of labels."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from configs.disk import IMAGE_SUFFIXES
from configs.errors import DataError
from configs.files import open_regular, read_text
from train.data.source import Source


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Image files and their labels; `names[label]` is the name of a class."""

    files: list[Path]
    labels: list[int]
    names: list[str]


def list_images(folder: Path, *, labels: Path | None) -> Listing:
    """List the images of `folder` in a fixed order. Raise `DataError` if labels do not match."""
    return _list_by_csv(folder, labels) if labels else _list_by_folder(folder)


def _list_by_folder(folder: Path) -> Listing:
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not names:
        raise DataError(
            f"{folder}: no sub-folders; a flat folder needs data.labels, a csv of name and label"
        )
    files: list[Path] = []
    labels: list[int] = []
    for number, name in enumerate(names):
        found = sorted(file for file in (folder / name).iterdir() if _is_image(file))
        if not found:
            raise DataError(
                f"{folder / name}: a class without images ({', '.join(IMAGE_SUFFIXES)})"
            )
        files += found
        labels += [number] * len(found)
    return Listing(files=files, labels=labels, names=names)


def _list_by_csv(folder: Path, table: Path) -> Listing:
    rows = _read_labels(table)
    by_stem = {file.stem: file for file in folder.iterdir() if _is_image(file)}
    missing = [name for name in rows if Path(name).stem not in by_stem and name not in by_stem]
    if missing:
        raise DataError(
            f"{table}: {len(missing)} of {len(rows)} images are not in {folder}, "
            f"the first is {missing[0]}"
        )
    stems = {name: name if name in by_stem else Path(name).stem for name in rows}
    unlabelled = sorted(set(by_stem) - set(stems.values()))
    if unlabelled:
        raise DataError(
            f"{folder}: {len(unlabelled)} images have no label in {table}, "
            f"the first is {by_stem[unlabelled[0]].name}"
        )
    # In numeric order if the names of classes are numbers.
    names = sorted(set(rows.values()), key=lambda name: (not name.isdigit(), name.zfill(9), name))
    label_of = {name: label for label, name in enumerate(names)}
    ordered = sorted(rows, key=lambda name: stems[name])
    return Listing(
        files=[by_stem[stems[name]] for name in ordered],
        labels=[label_of[rows[name]] for name in ordered],
        names=names,
    )


def _read_labels(table: Path) -> dict[str, str]:
    try:
        rows = [row for row in csv.reader(io.StringIO(read_text(table))) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"data.labels {table}: cannot be read: {error}") from None
    if rows and any("label" in cell.lower() or "class" in cell.lower() for cell in rows[0]):
        rows = rows[1:]
    bad = next((row for row in rows if len(row) < 2 or not row[0] or not row[1]), None)
    if bad is not None or not rows:
        raise DataError(f"data.labels {table}: expected rows of file name, label; found {bad}")
    return {row[0].strip(): row[1].strip() for row in rows}


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in IMAGE_SUFFIXES


class ImageFolder(Source):
    """Listed images, cropped to the central square, scaled to `size`, as bytes."""

    def __init__(self, listing: Listing, *, size: int, channels: int, classes: int) -> None:
        if len(listing.names) > classes:
            raise DataError(
                f"the data set has {len(listing.names)} classes, data.classes says {classes}"
            )
        self._listing, self._size, self._mode = listing, size, "L" if channels == 1 else "RGB"

    def __len__(self) -> int:
        return len(self._listing.files)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        file = self._listing.files[index]
        try:
            with open_regular(file) as stream, Image.open(stream) as image:
                square = centre_crop(image.convert(self._mode), self._size)
        except (OSError, UnidentifiedImageError, ValueError, SyntaxError) as error:
            raise DataError(f"{file}: not a readable image: {error}") from None
        pixels = np.asarray(square).reshape(self._size, self._size, -1)
        return pixels.transpose(2, 0, 1), self._listing.labels[index]


def centre_crop(image: Image.Image, size: int) -> Image.Image:
    """Return the central square of `image`, scaled to `size`.

    The image is halved by box averages while it is at least twice too large, then scaled by
    bicubic interpolation (the crop of Dhariwal & Nichol 2021).
    """
    while min(image.size) >= 2 * size:
        image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
    scale = size / min(image.size)
    width, height = round(image.width * scale), round(image.height * scale)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return image.crop((left, top, left + size, top + size))
