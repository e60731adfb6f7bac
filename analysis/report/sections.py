"""The sections of a page: the rows that commands print."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.detect.detectors import detect, finding_row
from analysis.gpus.load import explained, steady_load
from analysis.measure.differences import yaml_text
from analysis.measure.loss_curve import AXES, NO_TRAINING
from analysis.measure.rate import measure_rates
from analysis.measure.speed import Arm, attribution, group_arms
from analysis.measure.speed_table import time_rows
from analysis.measure.time_breakdown import PARTS
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.report.html import aside, figure, folded, section, table, text
from analysis.report.svg import shares
from analysis.study.cells import started_runs
from analysis.study.cells_table import hardware_text, rows_of
from analysis.study.compare import Comparison, axis_of, compare_all
from analysis.table import for_people

MOST_FINDINGS = 200


@dataclass(frozen=True, kw_only=True)
class ComparedArms:
    """Runs as arms of repeats, the first being the baseline, and their comparisons with it.

    `by` is the axis of losses.
    """

    arms: Sequence[Arm]
    found: Sequence[Comparison]
    by: str
    margin: float


def compared(logs: Sequence[RunLog], *, margin: float) -> ComparedArms | None:
    """Return the runs that have begun and train something as arms; None if there are none."""
    begun = started_runs(logs)
    trained = [log for log in begun if (log.config or {}).get("kind") not in NO_TRAINING]
    if not trained:
        return None
    arms = group_arms(measure_rates(trained))
    by = axis_of(trained)
    found = compare_all(arms, by=by, margin=margin)
    return ComparedArms(arms=arms, found=found, by=by, margin=margin)


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
    return section("verdicts", "Verdicts", listed) if lines else ""


def cells(study: ComparedArms) -> str:
    """Return the table of cells and their hardware."""
    within = f"Losses over {AXES[study.by]}, the same within {study.margin:.1%}."
    logs = [run.log for arm in study.arms for run in arm.runs]
    told = aside(f"On {hardware_text(logs)}. {within}")
    rows = rows_of(study.arms, study.found)
    shown = table([for_people(row, judged="speed") for row in rows])
    return section("cells", "Cells", shown, told)


def time(study: ComparedArms) -> str:
    """Return where the time of each run went, as numbers and as bars."""
    times = [row for row in time_rows(study.arms) if row["wall_s"] > 0]
    bars = shares(times, "wall_s", [f"{name}_s" for name in PARTS if name != "queue"])
    caption = "Shares of the time without the queue, by run"
    title = "Time by purpose, in seconds"
    return section("time", title, table(times), figure(bars, caption)) if times else ""


def remarks(study: ComparedArms) -> list[str]:
    """Return why rates are not known or narrow, and why runs are slow."""
    found = [run for arm in study.arms for run in arm.runs]
    return [line for run in found for line in (*run.remarks, *explained(run, steady_load(run)))]


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
