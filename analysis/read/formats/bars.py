"""Progress bars of tqdm: ai-toolkit, kohya, diffusers, accelerate."""

import re

import numpy as np

from analysis.read.text.batch import Field, Format
from analysis.read.text.shapes import Texts, decimals, integers
from analysis.stats.intervals import Floats

_BAR = re.compile(
    rb"\|\s*(?P<n>\d{1,15})/(?P<total>\d{1,15}) "
    rb"\[(?P<elapsed>(?:\d{1,5} days?, )?\d{1,6}:\d\d(?::\d\d)?)<(?P<left>[^,\]\r\n]{0,30})"
    rb"(?P<post>[^\]\r\n]{0,400})\]"
)
_LOSS = re.compile(rb"\b(?:loss|avr_loss|step_loss|train_loss)[=:]\s*([-+.\w]+)")
_LR = re.compile(rb"\blr[=:]\s*([-+.\w]+)")
_RATE = re.compile(rb"^,\s*([.\d]+(?:s/it|it/s))")


def _seconds(texts: Texts) -> Floats:
    """`MM:SS`, `H:MM:SS` or `D days, H:MM:SS` in seconds."""
    first = texts[0].tobytes()
    clock = first.rpartition(b", ")[2]
    begin = len(first) - len(clock)
    total = np.zeros(len(texts))
    for part in clock.split(b":"):
        total = total * 60 + integers(texts[:, begin : begin + len(part)])
        begin += len(part) + 1
    days = first.partition(b" day")[0] if clock != first else b""
    return total + 86400 * integers(texts[:, : len(days)]) if days else total


def _rate(texts: Texts) -> Floats:
    """The printed rate (`4.2it/s`, `1.3s/it`) in steps per second."""
    value = decimals(texts[:, : -len(b"it/s")])
    if texts[0].tobytes().endswith(b"it/s"):
        return value
    return np.divide(1, value, out=np.full(len(value), np.nan), where=value > 0)


BARS = Format(
    name="tqdm",
    token=b"<",
    pattern=_BAR,
    fields={
        "step": Field(group="n"),
        "group": Field(group="total"),
        "bar_s": Field(group="elapsed", convert=_seconds),
        "loss": Field(group="post", inner=_LOSS),
        "lr": Field(group="post", inner=_LR),
        "steps_per_s": Field(group="post", inner=_RATE, convert=_rate),
    },
    has_stamps=False,
    is_redrawn=True,
)
