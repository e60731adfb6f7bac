"""The sections of a page: the rows that commands print, each with the command that prints them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.detect.detectors import detect, finding_row
from analysis.gpus.load import explained, steady_load
from analysis.gradient_noise.stages import read_noise
from analysis.gradient_noise.table import noise_by_stage, noise_remarks, noise_rows
from analysis.measure import speed_table
from analysis.measure.differences import yaml_text
from analysis.measure.loss_curve import AXES, NO_TRAINING
from analysis.measure.quality import GUIDANCE, MARGIN, qualities, quality_rows
from analysis.measure.rate import measure_rates
from analysis.measure.speed import Arm, attribution, group_arms
from analysis.measure.time_breakdown import PARTS
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.report.html import aside, figure, folded, section, table, text
from analysis.report.sources import paths_of, recomputed
from analysis.report.svg import MOST_ROWS, Range, ranges, shares
from analysis.study.ablation import effect_rows, effects, interactions
from analysis.study.cells import group_cells, started_runs
from analysis.study.cells_table import hardware_text, rows_of
from analysis.study.compare import Comparison, axis_of, compare_all
from analysis.study.decision import decide, spent, standing_row
from analysis.table import for_people
from analysis.verdict import FIELDS
from configs.errors import Unreadable
from runs.folder import RunFolder
from runs.study_folder import study_of

# Two cells have a single ratio, which is among the verdicts.
FEWEST_CELLS = 3
MOST_FINDINGS = 200
# The default of `analysis noise`.
STAGES = 10


@dataclass(frozen=True, kw_only=True)
class ComparedArms:
    """Runs as arms of repeats, the first being the baseline, and their comparisons with it.

    `by` is the axis of losses, `beside` the folder of the page, to which paths are relative.
    """

    logs: Sequence[RunLog]
    arms: Sequence[Arm]
    found: Sequence[Comparison]
    by: str
    margin: float
    beside: Path


def compared(logs: Sequence[RunLog], *, margin: float, beside: Path) -> ComparedArms | None:
    """Return the runs that have begun and train something as arms; None if there are none."""
    begun = started_runs(logs)
    trained = [log for log in begun if (log.config or {}).get("kind") not in NO_TRAINING]
    if not trained:
        return None
    arms = group_arms(measure_rates(trained))
    by = axis_of(trained)
    found = compare_all(arms, by=by, margin=margin)
    return ComparedArms(logs=trained, arms=arms, found=found, by=by, margin=margin, beside=beside)


def verdicts(study: ComparedArms) -> str:
    """Return what each arm's verdicts on speed, loss and quality against the first say."""
    base, *others = study.arms
    lines = []
    for arm in others:
        own = [one.fields()["verdict"] for one in study.found if one.arm is arm]
        told = [*own, attribution(base, arm)]
        words = "<br>".join(text(one) for one in told if one)
        lines.append(f"<li><b>{text(arm.name)}</b><br>{words}</li>")
    listed = f'<ul class="verdicts">{"".join(lines)}</ul>'
    return section("verdicts", "Verdicts", listed, _again(study)) if lines else ""


def _again(study: ComparedArms) -> str:
    options = ("--by", study.by, "--margin", str(study.margin))
    return recomputed("compare", *options, paths=paths_of(study.logs), beside=study.beside)


def cells(study: ComparedArms) -> str:
    """Return the table of cells and their hardware."""
    if len(study.arms) < FEWEST_CELLS:
        return ""
    within = f"Losses over {AXES[study.by]}, the same within {study.margin:.1%}."
    told = aside(f"On {hardware_text(study.logs)}. {within}")
    rows = rows_of(study.arms, study.found)
    shown = table([for_people(row, judged="speed") for row in rows])
    return section("cells", "Cells", shown, told, _again(study))


def decisions(logs: Sequence[RunLog], beside: Path) -> str:
    """Return what a study with `stop: decided` has settled, and what that spared."""
    study = next((one for log in logs if (one := study_of(log.path))), None)
    if study is None or not study.study_file.exists() or not study.study().stop:
        return ""
    found = decide(study, logs)
    rows = [standing_row(one, base=next(iter(found.cells))) for one in found.contrasts]
    rule = "Intervals that hold at every look at once, 95 % for all of them together"
    again = recomputed("cells", "--decided", paths=[study.path], beside=beside)
    told = aside(f"{rule}; {spent(found, logs)}.")
    return section("decisions", "Decisions", table(list(map(for_people, rows))), told, again)


def factor_effects(study: ComparedArms) -> str:
    """Return main effects and interactions over pairs of cells that differ in one factor only."""
    known = [log for log in study.logs if log.config is not None]
    grouped = group_cells(known)
    found = effects(grouped) if len(grouped.cells) >= FEWEST_CELLS else []
    if not found:
        return ""
    rows, changes = effect_rows(found, interactions(found, grouped))
    rule = (
        f"{len(grouped.cells)} cells; a pair differs in one factor only, and a cell's rate is the "
        "mean over its repeats. Intervals need three pairs, and hold for these settings of the "
        "other factors."
    )
    return section(
        "effects",
        "Effects of the factors",
        *(_effects_of(metric, rows) for metric in dict.fromkeys(row["metric"] for row in rows)),
        table(list(map(for_people, rows))),
        "<h3>How an effect changes with another factor</h3>" if changes else "",
        table(list(map(for_people, changes))) if changes else "",
        aside(rule),
        recomputed("cells", "--ablation", paths=paths_of(known), beside=study.beside),
    )


def _effects_of(metric: str, rows: Sequence[Mapping[str, Any]]) -> str:
    drawn = [
        Range(name=f"{row['factor']}: {row['from']} to {row['to']}", value=row["ratio"],
              low=row["low"], high=row["high"])
        for row in rows
        if row["metric"] == metric
    ]  # fmt: skip
    unit = f"{metric}, times that of the first level"
    return figure(ranges(drawn, unit, reference=1), "Means over pairs of cells")


def quality(study: ComparedArms) -> str:
    """Return the distances of samples from a reference by arm, the first being the baseline."""
    arms = qualities(study.logs)
    rows = [_without(FIELDS, row) for row in quality_rows(arms, margin=MARGIN)] if arms else []
    options = ("--fid", "--margin", str(MARGIN))
    again = recomputed("cells", *options, paths=paths_of(study.logs), beside=study.beside)
    told = aside(f"{GUIDANCE.capitalize()}.")
    shown = table(list(map(for_people, rows)))
    return section("quality", "Quality of samples", shown, told, again) if rows else ""


def _without(names: Collection[str], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def speed(study: ComparedArms) -> str:
    """Return steady rates with their intervals, and where the time went."""
    rows = speed_table.speed_rows(study.arms)
    purposes = [f"{name}_s" for name in PARTS if name != "queue"]
    times = [row for row in speed_table.time_rows(study.arms) if row["wall_s"] > 0]
    rated = [
        Range(name=row["run"], value=row["steps_per_s"], low=row["steps_per_s_low"],
              high=row["steps_per_s_high"])
        for row in rows
    ]  # fmt: skip
    more = f"; the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    return section(
        "speed",
        "Speed",
        figure(ranges(rated, "steps per second"), f"Steady rates{more}"),
        table([for_people(_without(FIELDS, row)) for row in rows]),
        "<h3>Time by purpose, in seconds</h3>" + table(times) if times else "",
        figure(shares(times, "wall_s", purposes), "Shares of the time without the queue, by run"),
        recomputed("speed", "--arms", paths=paths_of(study.logs), beside=study.beside),
    )


def remarks(study: ComparedArms) -> list[str]:
    """Return why rates are not known or narrow, and why runs are slow."""
    found = [run for arm in study.arms for run in arm.runs]
    return [line for run in found for line in (*run.remarks, *explained(run, steady_load(run)))]


def gradient_noise(logs: Sequence[RunLog], beside: Path) -> str:
    """Return B_simple by checkpoint, and by bins of t if they were measured."""
    rows: list[dict[str, Any]] = []
    told: list[str] = []
    measured = []
    for log in logs:
        if (log.config or {}).get("kind") == "gns":
            with suppress(Unreadable):
                noise = read_noise(RunFolder(log.path), stages=STAGES)
                stages = noise_by_stage(noise)
                rows += noise_rows(noise, stages)
                told += noise_remarks(noise, stages)
                measured.append(log)
    if not measured:
        return ""
    drawn = [
        Range(name=f"{row['run']}, step {row['step']}", value=row["b_simple"], low=row["low"],
              high=row["high"])
        for row in rows
        if row["t"] == "all"
    ]  # fmt: skip
    plot = figure(ranges(drawn, "images"), "B_simple over all t, by checkpoint")
    again = recomputed("noise", paths=paths_of(measured), beside=beside)
    shown = table(list(map(for_people, rows)))
    return section("noise", "Gradient noise scale", plot, shown, *map(aside, told), again)


def findings(logs: Sequence[RunLog]) -> str:
    """Return what the detectors found in runs, with the lines that show it."""
    found = [(log, one) for log in logs for one in detect(log)]
    if not found:
        return section("findings", "Findings", aside("The detectors found nothing."))
    rows = [finding_row(log, one) for log, one in found[:MOST_FINDINGS]]
    left = len(found) - len(rows)
    return section("findings", "Findings", table(rows), aside(f"{left} more") if left else "")


def settings(logs: Sequence[RunLog]) -> str:
    """Return the config and the machine of a single run; of several, the place to compare two."""
    if len(logs) > 1:
        return section("compare", "Two runs side by side", '<div id="configs"></div>')
    (log,) = logs
    known = {"Config": log.config or {}, "Machine": machine(log.facts)}
    parts = [
        folded(title, table([{"name": n, "value": yaml_text(value)} for n, value in facts.items()]))
        for title, facts in known.items()
        if facts
    ]
    return section("settings", "Config and machine", *parts) if parts else ""


def study_sections(
    logs: Sequence[RunLog], *, margin: float, beside: Path
) -> tuple[dict[str, str], dict[str, str], str, list[str]]:
    """Return the sections before and after the table of runs, the baseline in words, and remarks.

    Runs that differ only in their seed are pooled as repeats of one arm. Runs that train nothing
    are listed but not compared.
    """
    study = compared(logs, margin=margin, beside=beside)

    def of_study(part: Callable[[ComparedArms], str]) -> str:
        return part(study) if study else ""

    first = {
        "verdicts": of_study(verdicts),
        "decisions": decisions(logs, beside),
        "cells": of_study(cells),
        "effects": of_study(factor_effects),
        "quality": of_study(quality),
        "noise": gradient_noise(logs, beside),
    }
    second = {
        "speed": of_study(speed),
        "findings": findings(logs),
        "settings": settings(logs),
    }
    base = f", compared with {study.arms[0].name}" if study and len(study.arms) > 1 else ""
    return first, second, base, remarks(study) if study else []
