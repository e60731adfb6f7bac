"""A drawing of a page that needs no script: where the time of runs went.

It is 860 units wide, in the colour of the text, so that it fits a light and a dark page.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.report.html import text
from configs.table import formatted

WIDTH, LABEL, ROW = 860, 300, 20
LONGEST_LABEL = 46
MOST_ROWS = 40
# More than there are phases, so that no two share one; readable on white and on black.
COLOURS = (
    "#1f77b4", "#e6730a", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#d65fb0", "#7f7f7f",
    "#a5a520", "#12a5b8", "#5b8ff9", "#b8860b", "#3d9970", "#c71585", "#6b5b95", "#808000",
)  # fmt: skip


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
    return (
        f'<svg viewBox="0 0 {WIDTH} {top + ROW * len(shown)}" font-size="12" role="img"'
        f' aria-label="shares of the time">{"".join(drawn)}</svg>'
    )


def _cut(name: str) -> str:
    if len(name) <= LONGEST_LABEL:
        return name
    half = LONGEST_LABEL // 2 - 1
    return f"{name[:half]}...{name[-half:]}"


def _words(x: float, y: float, words: str, *, title: str = "") -> str:
    told = f"<title>{text(title)}</title>" if title and _cut(title) != title else ""
    return f'<text x="{x:.1f}" y="{y}" fill="currentColor">{text(words)}{told}</text>'
