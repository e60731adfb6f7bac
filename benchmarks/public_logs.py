"""Examine the reading of logs against facts that scripts of their own derived from the same text.

python -m benchmarks.public_logs FOLDER [--facts FILE] [--markdown] [--details]

FOLDER holds checkouts of repositories as OWNER/NAME; logs that it lacks are counted. The facts are
`docs/measurements/public-logs.tsv`, with the columns set, repository (OWNER/NAME@commit), path,
kind, quantity, truth, tolerance and how (the truth was derived).
Quantities are `last` (step or epoch), `loss`, `val_loss`, `rate`, `runs` (sessions) and `batch`.
A truth may have alternatives (`80 epochs|19990 steps`), and `none` says that nothing need be
claimed; a tolerance is relative with `%`, else absolute.
"""

import argparse
import contextlib
import csv
import io
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.__main__ import main as analysis
from analysis.read.find import read_all
from analysis.read.options import parse_options, reading_with
from analysis.read.run_log import RunLog
from configs.errors import ConfigError, Unreadable

FACTS = Path(__file__).parents[1] / "docs/measurements/public-logs.tsv"
OUTCOMES = ("right", "wrong and certain", "refused", "unread")
# Truths of some logs call episodes and frames steps.
UNITS = {
    "steps": ("step", "episode", "frame", "game", "timestep"),
    "epochs": ("epoch",),
    "samples": ("sample",),
}
# A user who reads one of these knows that the value may be wrong.
DOUBT = re.compile(
    r"two readings|no unit|does not say|does not name|not known|may be|might be|uncertain"
    r"|unclear|doubt|as it was read|disagree|ambiguous|could also"
)

# Words by which a remark names a quantity.
NAMES = {
    "last": re.compile(r"step|epoch|axis|lines of another kind"),
    "loss": re.compile(r"loss"),
    "val_loss": re.compile(r"loss"),
    "rate": re.compile(r"time|step|rate|printed"),
    "runs": re.compile(r"session|run|resume|attempt|done again"),
    "batch": re.compile(r"batch"),
}


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One quantity of one log with its true values; `path` is OWNER/NAME/path in the checkout."""

    group: str
    path: str
    kind: str
    quantity: str
    truth: tuple[tuple[float, str], ...]
    tolerance: str
    may_be_absent: bool = False

    def holds(self, low: float, high: float, units: Sequence[str] | None) -> bool:
        """Return whether a true value with one of `units` (None: any) lies in [low, high]."""
        for value, unit in self.truth:
            relative = self.tolerance.endswith("%")
            margin = float(self.tolerance.rstrip("%")) * (abs(value) / 100 if relative else 1)
            inside = low - margin * (1 + 1e-9) <= value <= high + margin * (1 + 1e-9)
            if inside and (units is None or not unit or unit in units):
                return True
        return False


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the commands say of one log: rows of `runs` and `speed`, the logs, and remarks."""

    rows: tuple[dict[str, Any], ...] = ()
    rates: tuple[dict[str, Any], ...] = ()
    logs: tuple[RunLog, ...] = ()
    remarks: tuple[str, ...] = ()


def read_facts(path: Path) -> list[Fact]:
    """Return the facts of a table, in the order of the file."""
    with open(path, encoding="utf-8") as file:
        return [_fact(row) for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def _fact(row: dict[str, str]) -> Fact:
    texts = row["truth"].split("|")
    parts = [text.partition(" ") for text in texts if text != "none"]
    return Fact(
        group=row["set"],
        path=f"{row['repository'].partition('@')[0]}/{row['path']}",
        kind=row["kind"],
        quantity=row["quantity"],
        truth=tuple((float(number), unit) for number, _, unit in parts),
        tolerance=row["tolerance"],
        may_be_absent="none" in texts,
    )


def read(path: Path, pattern: str | None = None) -> Reading:
    """Run the commands on one log; `rows` is empty if it holds no run."""
    options = ["--pattern", pattern] if pattern else []
    rows, said = _command(["runs", str(path), "--json", *options])
    rates, more = _command(["speed", str(path), "--json", *options])
    try:
        with reading_with(parse_options(pattern=pattern, columns=None, facts=[])):
            logs = tuple(read_all([str(path)]).logs)
    except (Unreadable, ConfigError):
        logs = ()
    known = tuple(row for row in rows if row.get("state") != "unreadable")
    return Reading(rows=known, rates=tuple(rates), logs=logs, remarks=(*said, *more))


def _command(arguments: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        analysis(arguments)
    found = json.loads(out.getvalue()) if out.getvalue().strip() else []
    return found if isinstance(found, list) else found["rows"], err.getvalue().splitlines()


def judge(fact: Fact, reading: Reading) -> str:
    """Return the outcome of a fact: one of `OUTCOMES`."""
    if not reading.rows:
        return "unread" if fact.truth else "right"
    if fact.quantity == "rate":
        return _judge_rate(fact, reading)
    shown = _shown(fact, reading)
    if not shown:
        return "right" if fact.may_be_absent else "refused"
    if any(fact.holds(value, value, units) for value, units in shown):
        return "right"
    return "refused" if _is_doubted(fact, reading) else "wrong and certain"


def _judge_rate(fact: Fact, reading: Reading) -> str:
    found = [_rate(row) for row in reading.rates]
    certain = [rate for rate in found if rate[0] is not None]
    if not fact.truth:
        return "wrong and certain" if certain else "right"
    for low, rate, high, unit in found:
        units = [f"{unit}s/s", *(f"{name}/s" for name, axes in UNITS.items() if unit in axes)]
        if rate is not None and fact.holds(low or rate, high or rate, units):
            return "right"
    return "wrong and certain" if certain and not _is_doubted(fact, reading) else "refused"


def _rate(row: dict[str, Any]) -> tuple[float | None, float | None, float | None, str]:
    """Return the lower end, the rate, the upper end and the unit of a row of `speed`."""
    name = "steps_per_s" if "steps_per_s" in row else "units_per_s"
    return row.get(f"{name}_low"), row.get(name), row.get(f"{name}_high"), row.get("counts", "step")


def _shown(fact: Fact, reading: Reading) -> list[tuple[float, Sequence[str] | None]]:
    """Return the values shown of a quantity, with the names of units that each may have.

    A log of a few runs may mean any of them; where there are many, only the last one counts.
    """
    if fact.quantity == "runs":
        return [(float(sum(row.get("attempts") or 1 for row in reading.rows)), None)]
    if fact.quantity == "batch":
        return [(float(log.global_batch), None) for log in reading.logs if log.global_batch]
    if fact.quantity == "val_loss":
        return [(value, None) for log in reading.logs for value in _evaluated(log)]
    found = [(row, log) for row, log in zip(reading.rows, reading.logs, strict=False)]
    found = found if len(found) <= 3 else found[-1:]
    shown: list[tuple[float | None, Sequence[str] | None]] = []
    for row, log in found:
        if fact.quantity == "last":
            shown += [(row.get("step"), _units(log)), (row.get("epoch"), ["epochs"])]
        else:
            shown.append((row.get("loss"), None))
    return [(float(value), units) for value, units in shown if value is not None]


def _units(log: RunLog) -> list[str]:
    """Return the names of units that a step of the log may stand for."""
    named = [unit for unit, axes in UNITS.items() if log.axis in axes]
    return [*named, "episodes", "frames"] if named in ([], ["steps"]) else named


def _evaluated(log: RunLog) -> list[float]:
    """Return the last value of each evaluation that is a loss."""
    last: dict[str, float] = {}
    for record in log.evaluations:
        last |= {
            name: v
            for name, v in record.items()
            if "loss" in name.lower() and type(v) in (int, float)
        }
    return list(last.values())


def _is_doubted(fact: Fact, reading: Reading) -> bool:
    """Return whether the log's own notes or a remark say that the quantity is uncertain."""
    names = {"last": ["step"], "rate": ["step", "time", "printed"]}.get(fact.quantity, ["loss"])
    marked = {name for log in reading.logs for name in getattr(log, "uncertain", ())}
    doubts = [remark for remark in reading.remarks if DOUBT.search(remark)]
    return bool(marked.intersection(names)) or any(map(NAMES[fact.quantity].search, doubts))


def proposal(remarks: Iterable[str]) -> str | None:
    """Return the pattern that a sentence proposes to paste, as a shell would read it."""
    for line in remarks:
        if "--pattern " in line:
            with contextlib.suppress(ValueError, IndexError):
                return shlex.split(line.rpartition("--pattern ")[2])[0]
    return None


def examine(folder: Path, facts: Iterable[Fact]) -> list[tuple[Fact, str, str, Reading]]:
    """Return each fact with its outcome, the outcome after pasting, and what was read."""
    readings: dict[str, tuple[Reading, Reading]] = {}
    found = []
    for fact in facts:
        if fact.path not in readings:
            first = read(folder / fact.path)
            pattern = None if first.rows else proposal(first.remarks)
            readings[fact.path] = (first, read(folder / fact.path, pattern) if pattern else first)
        first, pasted = readings[fact.path]
        found.append((fact, judge(fact, first), judge(fact, pasted), first))
    return found


def main(arguments: list[str]) -> int:
    """Print the outcomes; return 1 if a value is wrong and shown as certain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--facts", type=Path, default=FACTS, metavar="FILE")
    parser.add_argument("--markdown", action="store_true", help="a table by kind")
    parser.add_argument("--details", action="store_true", help="a line per fact that is not right")
    args = parser.parse_args(arguments)
    facts = read_facts(args.facts)
    there = [fact for fact in facts if (args.folder / fact.path).is_file()]
    absent = {fact.path for fact in facts} - {fact.path for fact in there}
    if absent:
        print(f"{args.folder} lacks {len(absent)} of the logs, such as {min(absent)}")
    found = examine(args.folder, there)
    for group in dict.fromkeys(fact.group for fact in there):
        mine = [entry for entry in found if entry[0].group == group]
        total = Counter(outcome for _, outcome, _, _ in mine)
        pasted = Counter(after for _, before, after, _ in mine if before == "unread")
        logs = len({fact.path for fact, *_ in mine})
        kinds = len({fact.kind for fact, *_ in mine})
        print(f"{group}: {len(mine)} facts of {logs} logs of {kinds} kinds: {_counts(total)}")
        print(f"{group}: the unread after pasting: {_counts(pasted)}")
    if args.markdown:
        print(f"\n| kind | facts | {' | '.join(OUTCOMES)} |\n|---|---|{'---|' * len(OUTCOMES)}")
        for kind in sorted({fact.kind for fact, *_ in found}):
            counts = Counter(outcome for fact, outcome, _, _ in found if fact.kind == kind)
            cells = [str(counts[name] or "") for name in OUTCOMES]
            print(f"| {kind.replace('|', '/')} | {counts.total()} | {' | '.join(cells)} |")
    for fact, outcome, after, reading in found:
        if args.details and outcome != "right":
            said = [
                {k: row.get(k) for k in ("step", "loss", "attempts")} for row in reading.rows[:3]
            ]
            print(f"{outcome}: {fact.path} {fact.quantity}: {fact.truth}, shown {said}; {after}")
    return 1 if any(outcome == "wrong and certain" for _, outcome, _, _ in found) else 0


def _counts(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[name]} {name}" for name in OUTCOMES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
