"""The sections of a report on a study: its cells, their samples, and the effects of its factors."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.measure.loss import AXES
from analysis.measure.quality import GUIDANCE, MARGIN, qualities, quality_row
from analysis.read.run_log import RunLog
from analysis.report.evidence import command, evidence, recomputed
from analysis.report.html import aside, figure, section, table
from analysis.report.plots import as_svg
from analysis.study.ablation import Effect, effect_row, effects, interaction_row, interactions
from analysis.study.cells import StudyRuns, group_cells, started_runs
from analysis.study.cells_table import cell_rows, display_cell, hardware_text
from analysis.study.decision import contrast_row, decide, spent
from analysis.study.plots import effects_figure
from analysis.table import with_intervals
from runs.study_folder import study_of

# Two cells have a single ratio, which is among the verdicts.
FEWEST_CELLS = 3


def cells_section(logs: Sequence[RunLog], beside: Path, *, by: str, margin: float) -> str:
    """Return the table of cells and their hardware."""
    known = [log for log in started_runs(logs) if log.config is not None]
    rows = cell_rows(known, by=by, margin=margin) if known else []
    if len(rows) < FEWEST_CELLS:
        return ""
    return section(
        "cells",
        "Cells",
        table([display_cell(row) for row in rows]),
        aside(f"On {hardware_text(known)}. Losses over {AXES[by]}, the same within {margin:.1%}."),
        recomputed("cells", "--by", by, "--margin", str(margin), logs=known, beside=beside),
    )


def decisions_section(logs: Sequence[RunLog], beside: Path) -> str:
    """Return what a study with `stop: decided` has settled, and what that spared."""
    study = next((one for log in logs if (one := study_of(log.path))), None)
    if study is None or not study.study_file.exists() or not study.study().stop:
        return ""
    found = decide(study, logs)
    rows = [with_intervals(contrast_row(one)) for one in found.contrasts]
    rule = "Intervals that hold at every look at once, 95 % for all of them together"
    return section(
        "decisions",
        "Decisions",
        table(rows),
        aside(f"{rule}; {spent(found, logs)}."),
        evidence(logs, [command("cells", "--decided", paths=[study.path], beside=beside)], beside),
    )


def quality_section(logs: Sequence[RunLog], beside: Path) -> str:
    """Return the distances of samples from a reference by arm, the first being the baseline."""
    arms = qualities(logs)
    if not arms:
        return ""
    rows = [with_intervals(quality_row(arms[0], arm, margin=MARGIN)) for arm in arms]
    told = aside(f"{GUIDANCE.capitalize()}.")
    shown = recomputed("cells", "--fid", "--margin", str(MARGIN), logs=logs, beside=beside)
    return section("quality", "Quality of samples", table(rows), told, shown)


def effects_section(logs: Sequence[RunLog], beside: Path) -> str:
    """Return main effects and interactions over pairs of cells that differ in one factor only."""
    known = [log for log in started_runs(logs) if log.config is not None]
    study = group_cells(known)
    found = effects(study) if len(study.cells) >= FEWEST_CELLS else []
    if not found:
        return ""
    changes = interactions(found, study)
    return section(
        "effects",
        "Effects of the factors",
        figure(
            as_svg(effects_figure(found, study)),
            "Each dot is a pair of cells; mean and 95 % interval",
        ),
        table([_rounded(effect_row(effect)) | {"unlike": None} for effect in found]),
        *(aside(line) for line in _unlike(found)),
        "<h3>How an effect changes with another factor</h3>" if changes else "",
        table([_rounded(interaction_row(one)) for one in changes]) if changes else "",
        aside(_rule(study)),
        recomputed("cells", "--ablation", logs=known, beside=beside),
    )


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Round percents to a tenth; more digits would be noise."""
    return {
        name: f"{value:+.1f}" if isinstance(value, float) else value for name, value in row.items()
    }


def _unlike(found: Sequence[Effect]) -> list[str]:
    return [
        f"{pair.after.name}: {100 * math.expm1(pair.change):+.0f} % by {effect.factor}, unlike its "
        "siblings"
        for effect in found
        for pair in effect.unlike
    ]


def _rule(study: StudyRuns) -> str:
    return (
        f"{len(study.cells)} cells; a pair differs in one factor only, and a cell's rate is the "
        "mean over its repeats. Intervals need three pairs, and hold for these settings of the "
        "other factors."
    )
