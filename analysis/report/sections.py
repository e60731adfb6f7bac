"""The sections of a page: the rows that commands print."""

from collections.abc import Sequence

from analysis.detect.detectors import detect, finding_row
from analysis.gpus.load import explained, steady_load
from analysis.measure.differences import yaml_text
from analysis.measure.loss_curve import NO_TRAINING
from analysis.measure.rate import measure_rates
from analysis.measure.speed import Arm, group_arms
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.report.html import aside, folded, listing, section, table, text
from analysis.study.cells import started_runs
from analysis.study.cells_table import hardware_text, rows_of
from analysis.study.compare import told
from analysis.table import for_people
from configs.table import Row

MOST_FINDINGS = 200


def trained_arms(logs: Sequence[RunLog]) -> list[Arm]:
    """Return the runs that have begun and train something as arms of repeats."""
    return group_arms(
        measure_rates(
            [log for log in started_runs(logs) if (log.config or {}).get("kind") not in NO_TRAINING]
        )
    )


def verdicts(arms: Sequence[Arm], found: Sequence[Row]) -> str:
    """Return what `compare` says of each arm's speed, loss and quality against the first."""
    lines = []
    for arm in arms[1:]:
        own = [told(row) for row in found if row["run"] == arm.name]
        words = "<br>".join(map(text, own))
        lines.append(f"<li><b>{text(arm.name)}</b><br>{words}</li>")
    listed = f'<ul class="verdicts">{"".join(lines)}</ul>'
    return section("verdicts", "Verdicts", listed) if lines else ""


def cells(arms: Sequence[Arm], found: Sequence[Row], *, told: str) -> str:
    """Return the table of cells, and below it their hardware and what is `told`."""
    if not arms:
        return ""
    shown = table([for_people(row) for row in rows_of(arms, found)])
    hardware = hardware_text([run.log for arm in arms for run in arm.runs])
    return section("cells", "Cells", shown, aside(f"On {hardware}. {told}"))


def time(times: Sequence[Row]) -> str:
    """Return where the time of each run went, and the place of the bars that the script draws."""
    title = "Time by purpose, in seconds"
    return section("time", title, table(times), '<div id="shares"></div>') if times else ""


def remarks(arms: Sequence[Arm]) -> str:
    """Return why rates are not known or narrow, and why runs are slow."""
    runs = [run for arm in arms for run in arm.runs]
    found = [line for run in runs for line in (*run.remarks, *explained(run, steady_load(run)))]
    return section("remarks", "Remarks", listing(found)) if found else ""


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
