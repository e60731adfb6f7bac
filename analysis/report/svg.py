"""Drawings of a page that need no script: values with their intervals, and shares of time.

They are 860 units wide, in the colour of the text, so that they fit a light and a dark page.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.report.html import text
from configs.table import formatted

WIDTH, LABEL, VALUE = 860, 300, 150
ROW = 20
LONGEST_LABEL = 46
MOST_ROWS = 40
# More than there are phases, so that no two share one; readable on white and on black.
COLOURS = (
    "#1f77b4", "#e6730a", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#d65fb0", "#7f7f7f",
    "#a5a520", "#12a5b8", "#5b8ff9", "#b8860b", "#3d9970", "#c71585", "#6b5b95", "#808000",
)  # fmt: skip
# Below this share of its axis a difference of two ends is rounding.
ALMOST = 1e-9


@dataclass(frozen=True, kw_only=True)
class Range:
    """A named value with its interval; unknown ends and an unknown value are None."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None


def ranges(rows: Sequence[Range], unit: str, *, reference: float | None = None) -> str:
    """Draw a dot and a bar per row over one axis that contains `reference`; nothing for no value.

    The axis is logarithmic if all values are positive and span two decades.
    """
    drawn = [row for row in rows[:MOST_ROWS] if row.value is not None]
    ends = [x for row in drawn for x in (row.value, row.low, row.high) if x is not None]
    ends += [] if reference is None else [reference]
    finite = [x for x in ends if math.isfinite(x)]
    if not drawn or not finite:
        return ""
    is_log = min(finite) > 0 and max(finite) > 100 * min(finite)
    at = _axis(min(finite), max(finite), is_log=is_log)
    height = ROW * len(drawn) + 34
    bottom = height - 34
    parts = []
    for place, row in enumerate(drawn):
        y = ROW * place + 10
        value = row.value if row.value is not None else math.nan
        parts.append(_words(0, y + 4, _cut(row.name), title=row.name))
        between = "" if None in (row.low, row.high) else f" [{row.low:.3g}, {row.high:.3g}]"
        parts.append(_words(WIDTH, y + 4, f"{value:.4g}{between}", anchor="end"))
        if row.low is not None and row.high is not None:
            x = at(row.low)
            parts.append(
                f'<rect x="{x:.1f}" y="{y - 4}" width="{max(1.0, at(row.high) - x):.1f}" height="8"'
                f' rx="2" fill="{COLOURS[0]}" opacity=".45"/>'
            )
        parts.append(f'<circle cx="{at(value):.1f}" cy="{y}" r="3.5" fill="{COLOURS[0]}"/>')
    if reference is not None:
        x = at(reference)
        parts.append(f'<path d="M{x:.1f} 0V{bottom}" stroke="currentColor" stroke-dasharray="3"/>')
    parts.append(f'<path d="M{LABEL} {bottom}H{WIDTH - VALUE}" stroke="currentColor"/>')
    low, high = min(finite), max(finite)
    parts.append(_words(at(low), bottom + 14, formatted(float(low)), anchor="middle"))
    if high - low > ALMOST * abs(high):
        parts.append(_words(at(high), bottom + 14, formatted(float(high)), anchor="middle"))
    name = f"{unit}, logarithmic" if is_log else unit
    parts.append(_words((LABEL + WIDTH - VALUE) / 2, bottom + 28, name, anchor="middle"))
    return _svg(parts, height, unit)


def _axis(low: float, high: float, *, is_log: bool) -> Any:
    """Return a function from values to places between the labels and the values."""
    form = math.log if is_log else float
    span = (form(high) - form(low)) or 1.0
    left, width = LABEL + 20, WIDTH - VALUE - LABEL - 40

    def at(value: float) -> float:
        # An infinite end of an interval is the end of the axis.
        inside = min(max(value, low), high)
        return left + width * (form(inside) - form(low)) / span

    return at


def shares(rows: Sequence[Mapping[str, Any]], total: str, parts: Sequence[str]) -> str:
    """Draw the `parts` of each row's `total` as one bar, with a legend; each part has its colour.

    The total is the whole width. Rows are named by `run`.
    """
    shown = [row for row in rows[:MOST_ROWS] if row.get(total)]
    present = [name for name in parts if any(row.get(name) for row in shown)]
    if len(present) < 2:
        return ""
    top, drawn = 22 * -(-len(present) // 6) + 6, []
    for place, name in enumerate(present):
        x, y = 140 * (place % 6), 22 * (place // 6)
        drawn.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[place]}"/>')
        drawn.append(_words(x + 17, y + 11, name.removesuffix("_s")))
    for number, row in enumerate(shown):
        y, left = top + ROW * number, float(LABEL)
        drawn.append(_words(0, y + 12, _cut(row["run"]), title=row["run"]))
        for place, name in enumerate(present):
            width = (WIDTH - LABEL) * (row.get(name) or 0.0) / row[total]
            title = f"{name.removesuffix('_s')}: {formatted(row.get(name))} s"
            if width > 0:
                drawn.append(
                    f'<rect x="{left:.2f}" y="{y}" width="{width:.2f}" height="15"'
                    f' fill="{COLOURS[place]}"><title>{text(title)}</title></rect>'
                )
            left += width
    return _svg(drawn, top + ROW * len(shown), "shares of the time")


def _cut(name: str) -> str:
    if len(name) <= LONGEST_LABEL:
        return name
    half = LONGEST_LABEL // 2 - 1
    return f"{name[:half]}...{name[-half:]}"


def _words(x: float, y: float, words: str, *, anchor: str = "start", title: str = "") -> str:
    told = f"<title>{text(title)}</title>" if title and _cut(title) != title else ""
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="currentColor">'
        f"{text(words)}{told}</text>"
    )


def _svg(parts: Sequence[str], height: float, what: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" font-size="12" role="img"'
        f' aria-label="{text(what)}">{"".join(parts)}</svg>'
    )
