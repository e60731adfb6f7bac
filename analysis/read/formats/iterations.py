"""Lines of nanoGPT (`iter 5: loss ..., time ...ms`) and Megatron (`iteration 1/ 5 | ...`)."""

import re

from analysis.read.text.batch import Field, Format

_NANO = re.compile(
    rb"\biter (?P<step>\d{1,18}): loss (?P<loss>[-+.\w]+), time (?P<ms>[.\d]+)ms"
    rb"(?:, mfu (?P<mfu>[-.\d]+)%)?"
)
_MEGATRON = re.compile(rb"\biteration\s+(?P<step>\d{1,18})/\s*\d+ \|(?P<rest>[^\r\n]{1,2000})")


def _named(pattern: bytes, *, per: float = 1.0) -> Field:
    """A number that stands after its name in the rest of Megatron's line."""
    return Field(group="rest", inner=re.compile(pattern), per=per)


NANO_GPT = Format(
    name="nanoGPT",
    token=b"iter ",
    pattern=_NANO,
    fields={
        "step": Field(group="step"),
        "loss": Field(group="loss"),
        "mfu_percent": Field(group="mfu"),
        "step_s": Field(group="ms", per=1e3),
    },
)
MEGATRON = Format(
    name="Megatron",
    token=b"iteration",
    pattern=_MEGATRON,
    fields={
        "step": Field(group="step"),
        "images": _named(rb"consumed samples:\s*(\d+)"),
        "step_s": _named(rb"elapsed time per iteration \(ms\):\s*([.\d]+)", per=1e3),
        "loss": _named(rb"\b(?:lm )?loss:\s*([-+.\w]+)"),
        "lr": _named(rb"learning rate:\s*([-+.\w]+)"),
        "grad_norm": _named(rb"grad norm:\s*([-+.\w]+)"),
    },
)
