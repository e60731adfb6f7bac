"""Progress bars of tqdm: ai-toolkit, kohya, diffusers, accelerate."""

import re

import numpy as np

from analysis.noise import Floats
from analysis.read.batch import Batch, Format, from_matches, numbers
from analysis.read.chunks import Chunk

_BAR = re.compile(
    rb"\|\s*(?P<n>\d{1,15})/(?P<total>\d{1,15}) "
    rb"\[(?P<elapsed>(?:\d{1,5} days?, )?\d{1,6}:\d\d(?::\d\d)?)<(?P<left>[^,\]\r\n]{0,30})"
    rb"(?P<post>[^\]\r\n]{0,400})\]"
)
_LOSS = re.compile(rb"\b(?:loss|avr_loss|step_loss|train_loss)[=:]\s*([-+.\w]+)")
_LR = re.compile(rb"\blr[=:]\s*([-+.\w]+)")
_RATE = re.compile(rb"^,\s*([.\d]+)(s/it|it/s)")


def _read(chunk: Chunk) -> Batch | None:
    matches = list(_BAR.finditer(chunk.data))
    if not matches:
        return None
    matches = _last_of_each(matches)
    n, total, elapsed, _, post = zip(*(match.groups() for match in matches), strict=True)
    columns = {
        "step": numbers(n),
        "group": numbers(total),
        "bar_s": np.array([_seconds(text) for text in elapsed]),
        "loss": _found(_LOSS, post),
        "lr": _found(_LR, post),
        "steps_per_s": np.array([_rate(text) for text in post]),
        "time": np.full(len(n), np.nan),
    }
    return from_matches(chunk, matches, columns)


def _last_of_each(matches: list[re.Match[bytes]]) -> list[re.Match[bytes]]:
    """Of a bar that is redrawn at one step, the last drawing, whose loss is that step's."""
    keys = [match.group(1, 2) for match in matches]
    return [
        match
        for match, key, following in zip(matches, keys, [*keys[1:], None], strict=True)
        if key != following
    ]


def _found(pattern: re.Pattern[bytes], texts: tuple[bytes, ...]) -> Floats:
    found = map(pattern.search, texts)
    return numbers(match[1] if match else None for match in found)


def _seconds(text: bytes) -> float:
    """`MM:SS`, `H:MM:SS` or `D days, H:MM:SS` in seconds."""
    days, _, clock = text.rpartition(b", ")
    total = 0
    for part in clock.split(b":"):
        total = total * 60 + int(part)
    return float(total + 86400 * int(days.split()[0]) if days else total)


def _rate(post: bytes) -> float:
    """The printed rate in steps per second."""
    match = _RATE.search(post)
    if not match:
        return np.nan
    value = float(numbers([match[1]])[0])
    return value if match[2] == b"it/s" else 1 / value if value else np.nan


BARS = Format(name="tqdm", token=b"<", read=_read)
