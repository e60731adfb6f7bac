"""The section of a report on runs that measured gradient noise on checkpoints."""

from collections.abc import Sequence
from pathlib import Path

from analysis.gradient_noise.plot import noise_figure
from analysis.gradient_noise.stages import read_noise
from analysis.gradient_noise.table import noise_by_stage, noise_remarks, noise_rows
from analysis.read.run_log import RunLog
from analysis.report.evidence import recomputed
from analysis.report.html import aside, figure, section, table
from analysis.report.plots import as_svg
from configs.errors import Unreadable
from runs.folder import RunFolder

# The default of `analysis noise`.
STAGES = 10


def noise_section(logs: Sequence[RunLog], beside: Path) -> str:
    """Return B_simple by checkpoint, and by bins of t if they were measured."""
    found, measured = [], []
    for log in logs:
        if (log.config or {}).get("kind") != "gns":
            continue
        try:
            noise = read_noise(RunFolder(log.path), stages=STAGES)
        except Unreadable:
            continue
        found.append((noise, noise_by_stage(noise)))
        measured.append(log)
    if not found:
        return ""
    return section(
        "noise",
        "Gradient noise scale",
        figure(
            as_svg(noise_figure([(noise.name, stages) for noise, stages in found])),
            "B_simple over training and over t, with 95 % intervals",
        ),
        table([row for noise, stages in found for row in noise_rows(noise, stages)]),
        *(aside(line) for noise, stages in found for line in noise_remarks(noise, stages)),
        recomputed("noise", logs=measured, beside=beside),
    )
