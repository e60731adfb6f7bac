"""Captioned images (NAME.png beside NAME.txt) and prompts: both are UTF-8 text with a trigger."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from configs.disk import IMAGE_SUFFIXES
from configs.errors import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image

CAPTION = ".txt"
TRIGGER = "[trigger]"


@dataclass(frozen=True, kw_only=True)
class CaptionedFile:
    """The files of an image and of its caption; the caption may not exist."""

    image: Path
    caption: Path


def captioned_files(folder: Path) -> list[CaptionedFile]:
    """Return the images of a folder, sorted by name."""
    found = (file for file in folder.iterdir() if _is_image(file))
    return [CaptionedFile(image=file, caption=file.with_suffix(CAPTION)) for file in sorted(found)]


def _is_image(file: Path) -> bool:
    is_image = file.suffix.lower() in IMAGE_SUFFIXES
    return is_image and file.is_file() and not file.name.startswith(".")


def check_captions(folder: Path, *, trigger: str | None) -> None:
    """Raise `ConfigError` if there is no image, or one has no caption or cannot be decoded."""
    found = captioned_files(folder)
    if not found:
        kinds = " ".join(IMAGE_SUFFIXES)
        raise ConfigError(f"{folder}: contains no images; add some (any of {kinds})")
    image_of = {pair.caption: pair.image for pair in found}
    for pair in found:
        if image_of[pair.caption] != pair.image:
            raise ConfigError(
                f"{pair.image}: shares its caption with {image_of[pair.caption].name}; rename one"
            )
        if not pair.caption.is_file():
            raise ConfigError(
                f"{pair.image}: no caption; write {pair.caption.name} (for all problems: "
                f"ditbench finetune check-data {folder})"
            )
        fill_trigger(read_text(pair.caption), trigger)
        open_image(pair.image)


def open_image(file: Path) -> "Image":
    """Return the decoded image; raise `ConfigError` if it cannot be decoded."""
    # Imported late: code that only lists files needs no decoder.
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                image.load()
    except (
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise ConfigError(
            f"{file}: not a readable image ({error}); save it again, or remove it"
        ) from None
    return image


def read_prompts(prompts: Sequence[str], file: str | None) -> list[str]:
    """Return `prompts`, or the non-blank lines of `file` if one is given."""
    if file is None:
        return list(prompts)
    found = [line.strip() for line in read_text(Path(file)).splitlines() if line.strip()]
    if not found:
        raise ConfigError(f"prompts_file {file}: contains no prompt; write one per line")
    return found


def fill_trigger(text: str, trigger: str | None) -> str:
    """Replace `[trigger]` in `text`; raise `ConfigError` if it occurs and `trigger` is empty."""
    if TRIGGER in text and not trigger:
        raise ConfigError(
            f"{text!r} contains {TRIGGER}, but no trigger word is set; set data.trigger "
            "(trigger, if no run is given)"
        )
    return text.replace(TRIGGER, trigger or "")


def read_text(file: Path) -> str:
    """Return the stripped text of a caption or prompts file; raise `ConfigError` if not UTF-8."""
    try:
        return file.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        byte = file.read_bytes()[error.start]
        raise ConfigError(
            f"{file}: not UTF-8 text (byte 0x{byte:02x} at {error.start}); save it as UTF-8, "
            f"such as: iconv -f latin1 -t utf-8"
        ) from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
