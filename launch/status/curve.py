"""One run in a terminal: its loss as a curve, and its newest sample."""

import shutil
import sys

from configs.run.folder import RunFolder
from configs.run.records import is_number
from configs.table import output_width

# Lines of a curve, at most, and of what stands around it.
_HEIGHT, _AROUND = 15, 9


def run_lines(run: RunFolder) -> list[str]:
    """Return a curve of the loss (in a pipe its first and newest value) and the newest sample."""
    loss = {
        record["step"]: record["loss"]
        for record in run.records()
        if is_number(record.get("loss")) and isinstance(record.get("step"), int)
    }
    steps = sorted(loss)
    lines = []
    if len(steps) > 1:
        first, last = (f"{loss[step]:.4g} at step {step}" for step in (steps[0], steps[-1]))
        lines.append(f"loss {last}; it was {first}")
        if sys.stdout.isatty():
            lines += _curve([loss[step] for step in steps], steps)
    found = (path for path in run.samples.rglob("*") if path.suffix in (".png", ".jpg"))
    if newest := max(found, key=lambda path: path.stat().st_mtime_ns, default=None):
        lines.append(f"newest sample: {newest}")
    return lines


def _curve(loss: list[float], steps: list[int]) -> list[str]:
    import plotext  # it takes a tenth of a second

    height = max(5, min(_HEIGHT, shutil.get_terminal_size().lines - _AROUND))
    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plot_size(output_width(), height)
    plotext.plot(steps, loss, marker="braille")
    ticks = [steps[0], (steps[0] + steps[-1]) // 2, steps[-1]]
    plotext.xticks(ticks, list(map(str, ticks)))
    return str(plotext.uncolorize(plotext.build())).rstrip().splitlines()
