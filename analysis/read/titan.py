"""Lines of torchtitan and its forks: `step: 10  loss:  1.55  memory: 26GiB ... mfu: 10%`."""

import re

from analysis.read.batch import Batch, Format, from_matches, numbers
from analysis.read.chunks import Chunk

_LINE = re.compile(
    rb"\bstep:\s*(?P<step>\d{1,18})\s+loss:\s*(?P<loss>[-+.\w]+)"
    rb"(?:\s+grad_norm:\s*(?P<grad_norm>[-+.\w]+))?"
    rb"(?:\s+memory:\s*(?P<gpu_gib>[.\d]+)GiB\([.\d]+%\))?"
    rb"(?:\s+(?:wps|tps):\s*(?P<tokens_per_s>[.,\d]+))?"
    rb"(?:\s+tflops:\s*(?P<tflops>[.,\d]+))?"
    rb"(?:\s+mfu:\s*(?P<mfu_percent>[.\d]+%|N/A))?"
    rb"(?:\s+it/s:\s*(?P<steps_per_s>[.,\d]+))?"
    rb"(?:\s+im/s:\s*(?P<images_per_s>[.,\d]+))?"
)
_NAMES = tuple(_LINE.groupindex)


def _read(chunk: Chunk) -> Batch | None:
    matches = list(_LINE.finditer(chunk.data))
    if not matches:
        return None
    groups = zip(*(match.groups() for match in matches), strict=True)
    columns = {name: numbers(texts) for name, texts in zip(_NAMES, groups, strict=True)}
    return from_matches(chunk, matches, columns)


TITAN = Format(name="torchtitan", token=b"loss:", read=_read)
