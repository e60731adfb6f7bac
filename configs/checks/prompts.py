"""Prompts and captions: read as UTF-8, one prompt a line, with the trigger word filled in."""

from collections.abc import Sequence
from pathlib import Path

from configs.errors import ConfigError

TRIGGER = "[trigger]"


def prompts_of(prompts: Sequence[str], file: str | None) -> list[str]:
    """The prompts of a config: those listed, or the lines of a file that are not blank."""
    if file is None:
        return list(prompts)
    found = [line.strip() for line in read_text(Path(file)).splitlines() if line.strip()]
    if not found:
        raise ConfigError(f"prompts_file {file}: holds no prompt; write one a line")
    return found


def filled(text: str, trigger: str | None) -> str:
    """The text with `[trigger]` replaced; `ConfigError` where there is no word for it."""
    if TRIGGER in text and not trigger:
        raise ConfigError(
            f"{text!r} holds {TRIGGER}, and no word is set for it; set data.trigger (trigger, to "
            "draw without a run)"
        )
    return text.replace(TRIGGER, trigger or "")


def read_text(file: Path) -> str:
    """The text of a caption or a file of prompts; `ConfigError` where it is not UTF-8."""
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
