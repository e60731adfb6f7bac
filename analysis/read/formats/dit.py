"""Text logs of DiT, fast-DiT, SiT and REPA: `[time] (step=0000100) Train Loss: 0.1669, ...`."""

import re

from analysis.read.text.batch import Field, Format

_LINE = re.compile(
    rb"\(step=(?P<step>\d{1,18})\)\s*Train Loss(?: \w+)?:\s*(?P<loss>[-+.\w]+)"
    rb"(?:,\s*Train Loss ce:\s*(?P<ce>[-+.\w]+))?"
    rb"(?:,\s*Train Steps/Sec:\s*(?P<rate>[-+.\w]+))?"
)

DIT = Format(
    name="DiT",
    token=b"(step=",
    pattern=_LINE,
    fields={
        "step": Field(group="step"),
        "loss": Field(group="loss"),
        "loss ce": Field(group="ce"),
        "steps_per_s": Field(group="rate"),
    },
)
