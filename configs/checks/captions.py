"""A folder of captioned images: NAME.png (or another format) beside NAME.txt."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from configs.checks.prompts import filled, read_text
from configs.disk import IMAGE_SUFFIXES
from configs.errors import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image

CAPTION = ".txt"


@dataclass(frozen=True, kw_only=True)
class CaptionedFile:
    """An image's file and that of its caption, which may not be there."""

    image: Path
    caption: Path


def pairs(folder: Path) -> list[CaptionedFile]:
    """The images of a folder, in the order of their names."""
    found = (file for file in folder.iterdir() if _is_image(file))
    return [CaptionedFile(image=file, caption=file.with_suffix(CAPTION)) for file in sorted(found)]


def _is_image(file: Path) -> bool:
    is_image = file.suffix.lower() in IMAGE_SUFFIXES
    return is_image and file.is_file() and not file.name.startswith(".")


def open_image(file: Path) -> "Image":
    """The whole image, decoded; `ConfigError` where it cannot be."""
    # Not at the top: whoever only lists files needs no decoder.
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(file, error) from None
    except Image.DecompressionBombWarning as error:
        raise _unreadable(file, error) from None
    return image


def _unreadable(file: Path, error: Exception) -> ConfigError:
    return ConfigError(f"{file}: not a readable image ({error}); save it again, or remove it")


def check_captioned(folder: Path, *, trigger: str | None) -> None:
    """Refuse a folder without images, and an image that lacks a caption or cannot be decoded."""
    found = pairs(folder)
    if not found:
        kinds = " ".join(IMAGE_SUFFIXES)
        raise ConfigError(f"{folder}: holds no images; put some there (any of {kinds})")
    ends = {pair.caption: pair.image for pair in found}
    for pair in found:
        if ends[pair.caption] != pair.image:
            raise ConfigError(
                f"{pair.image}: shares its caption with {ends[pair.caption].name}; rename one"
            )
        if not pair.caption.is_file():
            raise ConfigError(
                f"{pair.image}: no caption; write {pair.caption.name} (all that is amiss: "
                f"python -m finetune doctor {folder})"
            )
        filled(read_text(pair.caption), trigger)
        open_image(pair.image)
