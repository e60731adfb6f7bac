"""Files: written whole or not at all; suffixes of images; the header of a safetensors file."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import ConfigError

# The suffix of a file that is being written; a kill leaves such a file behind.
PARTIAL_SUFFIX = ".tmp"

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm")

# The limit of the safetensors library.
_LONGEST_HEADER = 100_000_000


def replace_file(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` atomically: a reader, or a crash, sees the old or the new file.

    The content goes to a temporary file beside it, is forced to disk and renamed into place.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL_SUFFIX}")
    with partial.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk, so that a rename in it survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private() -> None:
    """Let only the owner read new files; the variable `UMASK` opens them to a group."""
    os.umask(int(os.environ.get("UMASK", "077"), 8))


@dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """One tensor of a safetensors file: where its bytes begin and end in the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class SafetensorsHeader:
    """The header of a safetensors file: its tensors by name, and its `__metadata__`."""

    tensors: dict[str, TensorEntry]
    metadata: dict[str, str]


def read_safetensors_header(file: Path, *, fix: str = "copy it again") -> SafetensorsHeader:
    """Read the header, and check that every byte of the tensors is there.

    The first 8 bytes are the length of the JSON that follows, as the format specifies. Raise
    `ConfigError`, ending in `fix`, for another format or a file of another length.
    """
    try:
        with file.open("rb") as content:
            length = int.from_bytes(content.read(8), "little")
            header = json.loads(content.read(length) if length <= _LONGEST_HEADER else b"")
        size = file.stat().st_size
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor_entry(entry, 8 + length) for name, entry in header.items()}
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}; {fix}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ConfigError(f"{file}: not a safetensors file; {fix}") from None
    if size != max((tensor.end for tensor in tensors.values()), default=8 + length):
        raise ConfigError(f"{file}: cut short, or written to; {fix}")
    return SafetensorsHeader(tensors=tensors, metadata=metadata)


def _tensor_entry(entry: dict[str, Any], data: int) -> TensorEntry:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    return TensorEntry(dtype=entry["dtype"], shape=shape, begin=data + begin, end=data + end)
