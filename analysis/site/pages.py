"""The pages of a site: an index, one per study and one per run, made of the parts of a report."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.detect.detectors import detect
from analysis.gpus.energy import energy
from analysis.measure.cost import cost_rows
from analysis.measure.differences import yaml_text
from analysis.measure.loss import same_quantity
from analysis.measure.overview import run_row
from analysis.measure.speed import Arm, group_arms, measure_rate
from analysis.measure.speed_table import display_row, speed_rows
from analysis.read.find import ReadLogs
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.report.evidence import command, evidence, relative
from analysis.report.html import STYLE, aside, page, section, table, text
from analysis.report.report import findings_section, report_sections
from analysis.site.curves import COLOURS, PLOT_AXES, curves, mean_curve, static_plot
from analysis.site.samples import samples
from analysis.study.cells import started_runs

STATIC = Path(__file__).parent / "static"
# Evaluations whose last value is a column of the index.
EVALUATED = ("validation_loss", "validation_gain", "fid_inf", "recognised")
COLUMNS = (
    "state", "gpu", "ranks", "step", "loss", *EVALUATED, "steps_per_s", "images_per_s",
    "gpu_hours", "money", "energy_kwh",
)  # fmt: skip
# Columns that say nothing of a run alone.
_OF_SEVERAL = ("run", "speedup", "front")
# Characters of JSON that turn the direction of text: they are shown by their numbers.
_TURNING = re.compile(r"\\(u202[a-e]|u206[6-9])")
# More curves on the page of a study would be unreadable, and the page large.
MOST_OVERLAID = 40


@dataclass(frozen=True, kw_only=True)
class Group:
    """A study, or the runs of one folder, and the pages of its runs in its folder of the site."""

    name: str
    runs: Mapping[str, RunLog]


@dataclass(frozen=True, kw_only=True)
class Pages:
    """The pages of a site in `out`, and what they share; a curve has at most `most` points."""

    title: str
    out: Path
    margin: float
    most: int
    rates: Mapping[str, float]
    rates_file: Path | None

    def index(
        self, groups: Sequence[Group], claims: Mapping[Path, Any], unread: Sequence[str]
    ) -> str:
        """Return the page that lists studies, runs and claims with their verdicts by file."""
        runs = [(group.name, file, log) for group in groups for file, log in group.runs.items()]
        rows = [self._index_row(name, log) for name, _, log in runs]
        files = {id(row): f"{name}/{file}" for row, (name, file, _) in zip(rows, runs, strict=True)}
        studies = [_study_row(group) for group in groups]
        data = {
            "runs": [[name, log.name] for name, _, log in runs],
            "columns": {name: [_finite(row[name]) for row in rows] for name in rows[0]},
            "keys": _varying([log for *_, log in runs]),
        }
        judged = [
            f"<h3>{text(relative(path, self.out))}</h3>{table(rows)}"
            + aside(command("audit", paths=[path], beside=self.out))
            for path, rows in claims.items()
        ]
        return self._page(
            self.title,
            f"{len(groups)} studies and folders, {len(runs)} runs",
            {
                "studies": section("studies", "Studies and folders", table(studies, link=_study)),
                "runs": section("runs", "Runs", table(
                    rows, link=lambda head, row: files[id(row)] if head == "run" else None
                )),
                "claims": section("claims", "Claims", *judged) if judged else "",
                "compare": _comparison(),
                "remarks": section("remarks", "Not read", *map(aside, unread)) if unread else "",
            },
            data,
        )  # fmt: skip

    def _index_row(self, group: str, log: RunLog) -> dict[str, Any]:
        row = self._costs(log) | run_row(log)
        for one in log.evaluations:
            row |= {name: one[name] for name in EVALUATED if name in one}
        known = {name: row.get(name) for name in COLUMNS}
        return {"run": log.name, "study": group, **known, "findings": len(detect(log))}

    def _costs(self, log: RunLog) -> dict[str, Any]:
        spent = energy(log)
        return cost_rows([log], self.rates)[0] | {"energy_kwh": spent and spent.kwh}

    def group(self, group: Group) -> str:
        """Return the page of a study: the report on it, with curves and samples to explore."""
        logs, beside = list(group.runs.values()), self.out / group.name
        found = ReadLogs(logs=tuple(logs))
        pages = {log.name: file for file, log in group.runs.items()}
        sections, subtitle = report_sections(found, beside=beside, margin=self.margin, pages=pages)
        means = [
            {"name": f"mean of {arm.name}", "of": mean["seeds"], "curves": {"loss": mean}}
            for arm in group_arms([measure_rate(log, clock=None) for log in started_runs(logs)])
            if (mean := mean_curve(arm, most=self.most))
        ]
        own = {log.name: curves(log, most=self.most) for log in logs[:MOST_OVERLAID]}
        kept = {
            n: {m: all_[m] for m in ("loss", *EVALUATED) if m in all_} for n, all_ in own.items()
        }
        drawn = [{"name": name, "curves": one} for name, one in kept.items() if one]
        explored = {
            "curves": _curves(drawn, [log for log in logs if "loss" in kept.get(log.name, {})]),
            **sections,
            "samples": _samples(logs) or sections["samples"],
            "compare": _comparison(),
        }
        data = _data([*means, *drawn], logs) | {
            "runs": [[group.name, log.name] for log in logs],
            "keys": _varying(logs),
        }
        return self._page(group.name, subtitle, explored, data, above={"": "../index.html"})

    def run(self, group: Group, log: RunLog) -> str:
        """Return the page of a run: figures with evidence, curves, samples, config and machine."""
        beside, remarks = self.out / group.name, measure_rate(log, clock=None).remarks
        drawn = [{"name": log.name, "curves": curves(log, most=self.most)}]
        sections = {
            "figures": self._figures(log, beside),
            "curves": _curves(drawn, [log]) if drawn[0]["curves"] else "",
            "samples": _samples([log]),
            "findings": findings_section([(log, one) for one in detect(log)], beside),
            "config": _listing("config", "Config", log.config or {}),
            "machine": _listing("machine", "Machine", machine(log.facts)),
            "remarks": section("remarks", "Remarks", *map(aside, remarks)),
        }
        above = {"": "../index.html", group.name: "index.html"}
        state = run_row(log)["state"] or "state unknown"
        return self._page(log.name, state, sections, _data(drawn, [log]), above=above)

    def _figures(self, log: RunLog, beside: Path) -> str:
        """Return the figures of a run, the lines they come from and the commands that give them."""
        prices = ("--rates", relative(self.rates_file, beside)) if self.rates_file else ()
        commands = [
            command(name, *options, paths=[log.path], beside=beside)
            for name, options in (("runs", ()), ("speed", ()), ("cost", prices))
        ]
        names = [name for name in curves(log, most=self.most) if name not in log.values]
        last = {name: one for one in log.evaluations for name in names if name in one}
        evaluated = [
            {"evaluation": name, "value": one[name], "step": one["step"], "line": one.get("line")}
            for name, one in last.items()
        ]
        rate = speed_rows([Arm(runs=(measure_rate(log, clock=None),))])
        tables = [
            [run_row(log)],
            [*map(display_row, rate)],
            [self._costs(log)],
            evaluated,
        ]
        shown = [table([{n: v for n, v in row.items() if n not in _OF_SEVERAL and v != "baseline"}
                        for row in rows]) for rows in tables if rows]  # fmt: skip
        return section("figures", "Figures", *shown, evidence([log], commands, beside))

    def _page(
        self, title: str, subtitle: str, sections: Mapping[str, str], data: Any,
        *, above: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Return a page with the links `above` it, all but the index in a folder of the site."""
        files = [f"{'../' if above else ''}{name}" for name in ("uPlot.iife.min.js", "site.js")]
        loader = (
            f"for (const src of {json.dumps(files)}) document.head.append("
            'Object.assign(document.createElement("script"), { src, async: false }));'
        )
        styles = [(STATIC / name).read_text("utf-8") for name in ("uPlot.min.css", "site.css")]
        way = (f'<a href="{to}">{text(n or self.title)}</a>' for n, to in (above or {}).items())
        return page(
            title, subtitle, sections, style="".join([STYLE, *styles]),
            above=f'<p class="way">{" / ".join(way)}</p>', script=loader,
            data=_TURNING.sub(
                r"\\\\\1", json.dumps(data, separators=(",", ":"), allow_nan=False)
            ),
        )  # fmt: skip


def _finite(value: Any) -> Any:
    """Return a value that JSON can hold: a diverged loss is the text `inf`."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _study_row(group: Group) -> dict[str, Any]:
    logs = group.runs.values()
    states = [run_row(log)["state"] or "unknown" for log in logs]
    questions = {(log.config or {}).get("question") for log in logs}
    counts = ", ".join(f"{states.count(one)} {one}" for one in dict.fromkeys(states))
    question = questions.pop() if len(questions) == 1 else None
    return {"study": group.name, "question": question, "runs": len(logs), "states": counts}


def _study(head: str, row: Mapping[str, Any]) -> str | None:
    return f"{row['study']}/index.html" if head == "study" else None


def _settings(log: RunLog) -> dict[str, str]:
    known = dict(log.config or {}) | machine(log.facts)
    return {name: yaml_text(value) for name, value in known.items() if name != "name"}


def _varying(logs: Sequence[RunLog]) -> dict[str, list[str | None]]:
    """Return the keys and facts in which runs differ, with a value for each run."""
    every = [_settings(log) for log in logs]
    names = dict.fromkeys(name for settings in every for name in settings)
    columns = {name: [settings.get(name) for settings in every] for name in names}
    return {name: column for name, column in columns.items() if len(set(column)) > 1}


def _comparison() -> str:
    return section("compare", "Two runs side by side", '<div id="configs"></div>')


def _listing(name: str, title: str, known: Mapping[str, Any]) -> str:
    rows = [{"name": key, "value": yaml_text(value)} for key, value in known.items()]
    return section(name, title, table(rows)) if rows else ""


def _curves(drawn: Sequence[Mapping[str, Any]], logs: Sequence[RunLog]) -> str:
    plot = f'<figure id="curves-plot">{static_plot(drawn)}</figure>' if drawn else ""
    thinning = "long ones thinned to the least and the largest value of equal stretches"
    remarks = [f"Of at most {MOST_OVERLAID} runs, {thinning}."]
    if not all(same_quantity(logs[0], log, "loss") for log in logs):
        remarks.append(
            "Some training losses are of other terms, or of pixels or latents of another VAE: only "
            "those of the same quantity can be compared."
        )
    return section("curves", "Curves", plot, *map(aside, remarks)) if drawn else ""


def _samples(logs: Sequence[RunLog]) -> str:
    figures = [
        f'<figure><img loading="lazy" src="../{one.file}" alt="{text(f"{log.name}, {one.noise}")}">'
        f"<figcaption>{text(log.name)}, step {one.step}</figcaption></figure>"
        for log in logs
        for one in samples(log)
    ]
    inside = f'<div id="viewer"></div><div class="grids">{"".join(figures)}</div>'
    return section("samples", "Samples by step", inside) if figures else ""


def _data(drawn: Sequence[Mapping[str, Any]], logs: Sequence[RunLog]) -> dict[str, Any]:
    images = [[log.name, one.step, one.noise, f"../{one.file}"]
              for log in logs for one in samples(log)]  # fmt: skip
    return {"axes": PLOT_AXES, "colours": COLOURS, "curves": list(drawn), "samples": images}
