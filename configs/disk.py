"""Files, written whole or not at all; suffixes of images; the header of a safetensors file."""

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from configs.errors import ConfigError
from configs.files import open_regular

# The suffix of a file that is being written; a kill leaves such a file behind.
PARTIAL_SUFFIX = ".tmp"

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm")

_END_BYTES = 2**16

# The limit of the safetensors library.
_LONGEST_HEADER = 100_000_000
_LARGEST_WEIGHTS = 2**43


def replace_file(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` as `replacing` does."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


class Below:
    """The path of a file or folder directly below the `path` of the object that has it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: type | None = None) -> Path:
        return Path(owner.path, self._name)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file to write, which replaces `path` atomically if no exception is raised.

    A reader, or a crash, sees the old or the new file. The content goes to a new file beside
    `path`, is forced to disk and renamed into place; so links at `path` are not followed. A
    library that writes by name may write to `Path(file.name)`.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}{PARTIAL_SUFFIX}")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_end(path: Path) -> str:
    """Return the last 64 KiB of a text file; nothing if it cannot be read."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, 2) - _END_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk, so that a rename in it survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private() -> int:
    """Let only the owner read new files; return the umask until now.

    The variable `UMASK` lets a group read them.
    """
    mask = os.environ.get("UMASK") or "077"
    if not re.fullmatch("0*[2367][2367]", mask):
        raise ConfigError(
            f"UMASK={mask!r}: not an octal mask that lets only the owner write, such as 027"
        )
    return os.umask(int(mask, 8))


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
        with open_regular(file, most=_LARGEST_WEIGHTS) as content:
            length = int.from_bytes(content.read(8), "little")
            header = json.loads(content.read(length) if length <= _LONGEST_HEADER else b"")
        size = file.stat().st_size
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor_entry(entry, 8 + length) for name, entry in header.items()}
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}; {fix}") from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ConfigError(f"{file}: not a safetensors file; {fix}") from None
    if size != max((tensor.end for tensor in tensors.values()), default=8 + length):
        raise ConfigError(f"{file}: cut short, or written to; {fix}")
    return SafetensorsHeader(tensors=tensors, metadata=metadata)


def _tensor_entry(entry: dict[str, Any], data: int) -> TensorEntry:
    begin, end = map(int, entry["data_offsets"])
    shape = tuple(map(int, entry["shape"]))
    if not 0 <= begin <= end or any(size < 0 for size in shape):
        raise ValueError("not a place in the file")
    return TensorEntry(dtype=entry["dtype"], shape=shape, begin=data + begin, end=data + end)
