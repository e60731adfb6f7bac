"""The sections of a report on fine-tuning runs and images drawn from them."""

import base64
from collections.abc import Sequence

from analysis.measure.finetune import display_row, finetune_rows, image_rows, of_kind, speedup_rows
from analysis.measure.sample_grid import render_png, sample_grids
from analysis.read.run_log import RunLog
from analysis.report.html import aside, section, table, text


def finetune_section(logs: Sequence[RunLog]) -> str:
    """Return rates and phases by device and steps, and speedups at equal steps."""
    tuned = of_kind(logs, "finetune")
    if not tuned:
        return ""
    ratios = speedup_rows(tuned)
    return section(
        "finetune",
        "Fine-tuning by device and steps",
        table([display_row(row) for row in finetune_rows(tuned)]),
        "<h3>Speedup at equal steps</h3>" + table([display_row(row) for row in ratios])
        if ratios
        else aside("No speedup: no two runs have the same number of steps on different devices."),
    )


def images_section(logs: Sequence[RunLog]) -> str:
    """Return seconds per image, of inference runs and of samples during training."""
    drew = [*of_kind(logs, "infer"), *of_kind(logs, "finetune")]
    rows = [row for row in image_rows(drew) if row["image_s"] is not None]
    if not rows:
        return ""
    return section(
        "images",
        "Seconds per image",
        table([display_row(row) for row in rows]),
        aside("Medians over images, without loading, warm-up and the first image of a start."),
    )


def grid_section(logs: Sequence[RunLog]) -> str:
    """Return samples by device and step, one picture per prompt."""
    found = sample_grids(of_kind(logs, "finetune"))
    pictures = []
    for grid in found.grids:
        address = "data:image/png;base64," + base64.b64encode(render_png([grid])).decode()
        pictures.append(
            f'<figure><img style="max-width:100%" src="{address}" alt="{text(grid.text)}">'
            f"<figcaption>{text(grid.text)}</figcaption></figure>"
        )
    if not pictures and not found.refusals:
        return ""
    remarks = (aside(line) for line in found.refusals)
    return section("grid", "Samples by device and step", *pictures, *remarks)
