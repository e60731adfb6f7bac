"""The header of a safetensors file: which tensors it holds, and whether it is whole."""

import json
from pathlib import Path
from typing import Any

from configs.errors import ConfigError

_LONGEST = 100_000_000


def read_header(file: Path) -> dict[str, Any]:
    """The entry of each tensor by its name, and `__metadata__` where there is any.

    The first 8 bytes are the length of the JSON that follows (the format's description);
    `ConfigError` where the file is none, or shorter than its header says.
    """
    try:
        with file.open("rb") as content:
            length = int.from_bytes(content.read(8), "little")
            text = content.read(length) if length <= _LONGEST else b""
        size = file.stat().st_size
        header = json.loads(text)
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name[:2] != "__"]
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ConfigError(f"{file}: not a safetensors file; name one, or copy it again") from None
    if size != 8 + length + max(ends, default=0):
        raise ConfigError(f"{file}: cut short, or written to; copy it again")
    return dict(header)
