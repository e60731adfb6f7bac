"""Captions and prompts, which are UTF-8 text with a trigger word, and images that can be read."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from configs.errors import ConfigError
from configs.files import open_regular, read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

TRIGGER = "[trigger]"


def open_image(file: Path) -> "Image":
    """Return the decoded image; raise `ConfigError` if it cannot be decoded."""
    # Imported late: code that only lists files needs no decoder.
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_regular(file) as stream, Image.open(stream) as image:
                image.load()
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        limit = f"more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels"
        raise ConfigError(f"{file}: {limit}; scale it down, as training does anyway") from None
    except (OSError, ValueError, SyntaxError) as error:
        raise ConfigError(
            f"{file}: not a readable image ({error}); save it again, or remove it"
        ) from None
    return image


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
        text = read_bytes(file).decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file}: not UTF-8 text (byte 0x{error.object[error.start]:02x} at {error.start}); "
            "save it as UTF-8 where it was written"
        ) from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if "\0" in text:
        raise ConfigError(f"{file}: holds NUL bytes, as UTF-16 does; save it as UTF-8")
    return text
