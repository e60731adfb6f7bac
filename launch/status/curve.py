"""One run in a terminal: its loss as a curve, and its newest sample."""

import shutil
import sys

from configs.run.folder import RunFolder
from configs.run.records import is_number
from configs.table import output_width


def run_lines(run: RunFolder) -> list[str]:
    """Return a curve of the loss (in a pipe its newest and first value) and the newest sample."""
    known = [record for record in run.records() if is_number(record.get("loss"))]
    loss = {record["step"]: record["loss"] for record in known}
    steps, lines = sorted(loss), []
    if len(steps) > 1:
        first, last = (f"{loss[step]:.4g} at step {step}" for step in (steps[0], steps[-1]))
        lines.append(f"loss {last}; it was {first}")
        if sys.stdout.isatty():
            lines += _curve([loss[step] for step in steps], steps)
    if samples := sorted(run.samples.rglob("*.png"), key=lambda path: path.stat().st_mtime_ns):
        lines.append(f"newest sample: {samples[-1]}")
    return lines


def _curve(loss: list[float], steps: list[int]) -> list[str]:
    import plotext  # it takes a tenth of a second

    # At most 15 lines, and room for the table.
    height = max(5, min(15, shutil.get_terminal_size().lines - 9))
    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plot_size(output_width(), height)
    plotext.plot(steps, loss, marker="braille")
    ticks = [steps[0], (steps[0] + steps[-1]) // 2, steps[-1]]
    plotext.xticks(ticks, list(map(str, ticks)))
    return str(plotext.uncolorize(plotext.build())).rstrip().splitlines()
