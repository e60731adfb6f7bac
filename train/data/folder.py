"""Image files as a data set: one sub-folder per class."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from configs.disk import IMAGE_SUFFIXES
from configs.errors import DataError
from configs.files import open_regular
from train.data.source import Source


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Image files and their labels; `names[label]` is the name of a class."""

    files: list[Path]
    labels: list[int]
    names: list[str]


def list_images(folder: Path) -> Listing:
    """List the images of `folder` in a fixed order. Raise `DataError` if there are none."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not names:
        raise DataError(f"{folder}: no sub-folders; it needs one for each class")
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
