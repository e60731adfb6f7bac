"""The sections of a report on fine-tuning runs and images drawn from them."""

import base64
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from analysis.measure import finetune
from analysis.measure.sample_grid import render_png, sample_grids
from analysis.read.run_log import RunLog
from analysis.report.evidence import recomputed
from analysis.report.html import aside, section, table, text

_LEARNT = (
    "Gain: by how much the LoRA reduces the loss at fixed times and noise, with a 95 % interval; "
    "on training images (validation) it shows that something was learned, on held-out ones that "
    "it holds for others."
)


def finetune_section(logs: Sequence[RunLog], beside: Path) -> str:
    """Return what was learned at what cost, seconds by phase, and speedups at equal steps."""
    tuned = finetune.of_kind(logs, "finetune")
    if not tuned:
        return ""
    ratios = finetune.speedup_rows(tuned)
    by_run = {log.name: finetune.settings(log) for log in tuned}
    common = set.intersection(*(set(known.items()) for known in by_run.values()))
    rows = [
        finetune.display_row(
            row | {"settings": _words(by_run[row["run"]], set(by_run[row["run"]].items()) - common)}
        )
        for row in finetune.finetune_rows(tuned)
    ]
    phases = ["wall_s", *(f"{name}_s" for name in finetune.PHASES)]
    asked = [name for name in rows[0] if name not in (*phases, "done", "engine", "clock")]
    return section(
        "finetune",
        "Fine-tuning",
        aside(f"All: {_words(by_run[tuned[0].name], common)}.") if common else "",
        table([{name: row[name] for name in asked} for row in rows]),
        aside(_LEARNT) if any(row.get("validation_gain") for row in rows) else "",
        "<h3>Seconds by phase</h3>",
        table([{name: row[name] for name in ("run", *phases)} for row in rows]),
        "<h3>Speedup at equal steps</h3>" + table([finetune.display_row(row) for row in ratios])
        if ratios
        else aside("No speedup: no two runs have the same number of steps on different devices."),
        recomputed("runs", "--finetune", logs=tuned, beside=beside),
    )


def _words(known: Mapping[str, str], kept: AbstractSet[tuple[str, str]]) -> str | None:
    return ", ".join(words for pair in known.items() if pair in kept for words in pair[1:]) or None


def images_section(logs: Sequence[RunLog]) -> str:
    """Return seconds per image, of inference runs and of samples during training."""
    drew = [*finetune.of_kind(logs, "infer"), *finetune.of_kind(logs, "finetune")]
    rows = [row for row in finetune.image_rows(drew) if row["image_s"] is not None]
    if not rows:
        return ""
    return section(
        "images",
        "Seconds per image",
        table([finetune.display_row(row) for row in rows]),
        aside("Medians over images, without loading, warm-up and the first image of a start."),
    )


def grid_section(logs: Sequence[RunLog]) -> str:
    """Return samples by device and step, one picture per prompt."""
    found = sample_grids(finetune.of_kind(logs, "finetune"))
    pictures = []
    for grid in found.grids:
        address = "data:image/png;base64," + base64.b64encode(render_png([grid])).decode()
        pictures.append(f'<figure><img src="{address}" alt="{text(grid.text)}"></figure>')
    if not pictures and not found.refusals:
        return ""
    remarks = (aside(line) for line in found.refusals)
    return section("grid", "Samples by device and step", *pictures, *remarks)
