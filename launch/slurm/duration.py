"""Time limits as Slurm writes them."""

import math
import re

_FORMS = re.compile(r"(?:(?P<days>\d+)-)?(?P<rest>\d+(?::\d+){0,2})")


def seconds(text: str) -> int | None:
    """The length of `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`; None for no limit."""
    match = _FORMS.fullmatch(text)
    if match is None:
        return None
    parts = [int(part) for part in match["rest"].split(":")]
    if match["days"] is None:
        # Minutes come first, except where all three are given.
        parts = [0, *parts] if len(parts) < 3 else parts
    parts += [0] * (3 - len(parts))
    hours, minutes, rest = parts
    return int(match["days"] or 0) * 86400 + hours * 3600 + minutes * 60 + rest


def spell(length_s: float) -> str:
    """`H:M:S`, rounded up to a minute, Slurm's own step."""
    minutes = max(1, math.ceil(length_s / 60 - 1e-6))
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"
