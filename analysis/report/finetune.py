"""The sections of a report that fine-tuning runs have."""

import base64
from collections.abc import Sequence

from analysis.measure.finetune import display_row, finetune_rows, image_rows, of_kind, speedup_rows
from analysis.measure.sample_grid import render_png, sample_grids
from analysis.read.run_log import RunLog
from analysis.report.html import aside, section, table, text


def tuning_section(logs: Sequence[RunLog]) -> str:
    """Rates and phases by device and steps, and speedups between devices at equal steps."""
    tuned = of_kind(logs, "finetune")
    if not tuned:
        return ""
    ratios = speedup_rows(tuned)
    return section(
        "tuning",
        "Fine-tuning by device and steps",
        table([display_row(row) for row in finetune_rows(tuned)]),
        "<h3>Speedup at equal steps</h3>" + table([display_row(row) for row in ratios])
        if ratios
        else aside("No two runs of as many steps on different devices: no speedup is told."),
    )


def drawing_section(logs: Sequence[RunLog]) -> str:
    """Seconds per image of runs that draw, and of samples on the way."""
    drew = [*of_kind(logs, "infer"), *of_kind(logs, "finetune")]
    told = [row for row in image_rows(drew) if row["image_s"] is not None]
    if not told:
        return ""
    return section(
        "drawing",
        "Seconds per image",
        table([display_row(row) for row in told]),
        aside("Medians over images; loading, warm-up and the first image of a start stand apart."),
    )


def grid_section(logs: Sequence[RunLog]) -> str:
    """Samples by device and step, a picture for each prompt."""
    found = sample_grids(of_kind(logs, "finetune"))
    pictures = []
    for grid in found.grids:
        address = "data:image/png;base64," + base64.b64encode(render_png(grid)).decode()
        pictures.append(
            f'<figure><img style="max-width:100%" src="{address}" alt="{text(grid.text)}">'
            f"<figcaption>{text(grid.text)}</figcaption></figure>"
        )
    if not pictures and not found.refusals:
        return ""
    remarks = (aside(line) for line in found.refusals)
    return section("grid", "Samples by device and step", *pictures, *remarks)
