"""Lines of nanoGPT (`iter 5: loss ..., time ...ms`) and Megatron (`iteration 1/ 5 | ...`)."""

import re

from analysis.read.batch import Batch, Format, from_matches, numbers
from analysis.read.chunks import Chunk

_NANO = re.compile(
    rb"\biter (?P<step>\d{1,18}): loss (?P<loss>[-+.\w]+), time (?P<ms>[.\d]+)ms"
    rb"(?:, mfu (?P<mfu>[-.\d]+)%)?"
)
_MEGATRON = re.compile(rb"\biteration\s+(\d{1,18})/\s*\d+ \|([^\r\n]{1,2000})")
_FIELDS = {
    "images": re.compile(rb"consumed samples:\s*(\d+)"),
    "ms": re.compile(rb"elapsed time per iteration \(ms\):\s*([.\d]+)"),
    "loss": re.compile(rb"\b(?:lm )?loss:\s*([-+.\w]+)"),
    "lr": re.compile(rb"learning rate:\s*([-+.\w]+)"),
    "grad_norm": re.compile(rb"grad norm:\s*([-+.\w]+)"),
}


def _read_nano(chunk: Chunk) -> Batch | None:
    matches = list(_NANO.finditer(chunk.data))
    if not matches:
        return None
    step, loss, ms, mfu = zip(*(match.groups() for match in matches), strict=True)
    columns = {"step": numbers(step), "loss": numbers(loss), "mfu_percent": numbers(mfu)}
    return from_matches(chunk, matches, columns | {"step_s": numbers(ms) / 1e3})


def _read_megatron(chunk: Chunk) -> Batch | None:
    matches = list(_MEGATRON.finditer(chunk.data))
    if not matches:
        return None
    columns = {"step": numbers(match[1] for match in matches)}
    for name, pattern in _FIELDS.items():
        found = (pattern.search(match[2]) for match in matches)
        columns[name] = numbers(one[1] if one else None for one in found)
    columns["step_s"] = columns.pop("ms") / 1e3
    return from_matches(chunk, matches, columns)


NANO_GPT = Format(name="nanoGPT", token=b"iter ", read=_read_nano)
MEGATRON = Format(name="Megatron", token=b"iteration", read=_read_megatron)
