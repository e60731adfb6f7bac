"""`audit`: recompute claims about runs."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.measure.arms import Arm
from analysis.measure.clocks import CLOCKS
from analysis.measure.loss import Compared, final_loss, loss_contrast, why_doubtful
from analysis.measure.rate import WIDEST, MeasuredRate, measure_rates
from analysis.measure.speed import SPEED, speed_contrast
from analysis.observations import attributed
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Estimate, estimate_fields
from analysis.stats.judge import HOLDS_ONE
from analysis.stats.judge import judge as verdicts_of
from analysis.stats.replicates import Contrast, Quantity
from analysis.table import put
from configs.errors import ConfigError, Unreadable
from configs.files import read_text
from configs.yaml12 import parse_yaml

EXAMPLE = """ditbench audit logs/claims.yaml

a claim:
  - text: compiling makes a step 17 % faster
    quantity: speedup
    runs: [eager-1120, compiled-1120]
    value: 17 %"""
QUANTITIES = {
    "steps_per_s": 1,
    "images_per_s": 1,
    "step_s": 1,
    "loss": 1,
    "speedup": 2,
    "loss_ratio": 2,
}
# A value that YAML would read as a number: as text it keeps the zeros at its end.
_AS_NUMBER = re.compile(r"(\bvalue:[ \t]+)([-+]?\d[\d.]*)(?=[ \t]*(?:[,}#]|$))", re.MULTILINE)
KEYS = {"text", "quantity", "runs", "value", "clock"}
LARGEST_FILE = 1 << 24
_NUMBER = re.compile(r"([-+]?[\d,]*\.?\d+(?:[eE][-+]?\d+)?)\s*(%|x|\u00d7)?")


def run(args: argparse.Namespace) -> int:
    """Print the verdicts; return 1 if a claim disagrees."""
    found = [judge(claim) for path in map(Path, args.paths) for claim in read_claims(path)]
    put(found, args, json={"claims": found})
    return 1 if any(row["verdict"] == "disagrees" for row in found) else 0


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claimed quantity of one or two runs; `half` is half a unit of its last printed digit."""

    text: str
    quantity: str
    runs: tuple[str, ...]
    value: float
    half: float
    clock: str | None = None


def parse_value(value: Any, *, quantity: str) -> tuple[float, float]:
    """Return the claimed number and half a unit of its last digit; `17 %` of a speedup is 1.17."""
    match = _NUMBER.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise Unreadable(f"{value!r} is not a number; expected one such as 1.8, 1.8x or 17 %")
    digits = match[1].replace(",", "")
    mantissa, _, exponent = digits.lower().partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    number = float(digits)
    if match[2] == "%":
        number, half = number / 100, half / 100
        number += 1 if quantity in ("speedup", "loss_ratio") else 0
    return number, half


def read_claims(path: Path) -> list[Claim]:
    """Read claims from YAML: a list, or a mapping with `claims`; runs are relative to the file."""
    if not path.is_file():
        raise Unreadable(f"{path}: no such file with claims")
    try:
        text = _AS_NUMBER.sub(r'\1"\2"', read_text(path, most=LARGEST_FILE))
        tree = parse_yaml(text, source=str(path))
    except (ConfigError, OSError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"{path}: cannot be read: {error}") from None
    listed = tree.get("claims") if isinstance(tree, dict) else tree
    if not isinstance(listed, list) or not listed:
        raise Unreadable(f"{path}: expected a list of claims (text, quantity, runs, value)")
    return [_claim(item, path, number) for number, item in enumerate(listed, start=1)]


def _claim(item: Any, path: Path, number: int) -> Claim:
    where = f"{path}, claim {number}"
    if not isinstance(item, dict) or not {"quantity", "runs", "value"} <= set(item) <= KEYS:
        raise Unreadable(f"{where}: expected text, quantity, runs, value and optionally clock")
    quantity, runs, clock = item["quantity"], item["runs"], item.get("clock")
    if quantity not in QUANTITIES:
        raise Unreadable(f"{where}: quantity {quantity!r} is none of {', '.join(QUANTITIES)}")
    if clock is not None and clock not in CLOCKS:
        raise Unreadable(f"{where}: clock {clock!r} is none of {', '.join(CLOCKS)}")
    listed = [runs] if isinstance(runs, str) else runs
    if not isinstance(listed, list) or len(listed) != QUANTITIES[quantity]:
        raise Unreadable(f"{where}: {quantity} takes {QUANTITIES[quantity]} runs")
    try:
        value, half = parse_value(item["value"], quantity=quantity)
    except Unreadable as error:
        raise Unreadable(f"{where}: value {error}") from None
    return Claim(
        text=str(item.get("text") or f"{quantity} of {', '.join(map(str, listed))}"),
        quantity=quantity,
        runs=tuple(str(path.parent / str(run)) for run in listed),
        value=value,
        half=half,
        clock=clock,
    )


def judge(claim: Claim) -> dict[str, Any]:
    """Return a claim beside its recomputed value; `why` names what is missing or wrong."""
    found: Estimate | None = None
    try:
        found, why, doubt = _recompute(claim)
    except Unreadable as error:
        why, doubt = str(error), None
    doubt = doubt or _why_unknown(found)
    verdict = "undecidable" if doubt else _agreement(claim, found)
    return {
        "text": claim.text,
        "claimed": claim.value,
        **estimate_fields("recomputed", found),
        "verdict": verdict,
        "why": "; ".join(filter(None, [why, doubt])),
    }


def _why_unknown(found: Estimate | None) -> str | None:
    """Return why an interval would confirm the opposite of a claim, too; None if it is narrow."""
    if found is None:
        return None
    if found.low is None or found.high is None:
        return "too few intervals of records for an interval of the value"
    if min(found.low / found.value, found.value / found.high) < 1 - WIDEST:
        return "the interval reaches further than a quarter of the value"
    return None


def _agreement(claim: Claim, found: Estimate | None) -> str:
    """Return whether a rounded number lies in an interval."""
    if found is None or found.low is None or found.high is None:
        return "undecidable"
    slack = claim.half * (1 + 1e-9)
    is_inside = found.low - slack <= claim.value <= found.high + slack
    return "agrees" if is_inside else "disagrees"


def _recompute(claim: Claim) -> tuple[Estimate | None, str, str | None]:
    """Return the value of a claim by its runs, what it is of, and why it decides nothing."""
    logs = [_one(run) for run in claim.runs]
    if claim.quantity == "loss":
        if doubt := why_doubtful(logs[0]):
            return None, doubt, None
        if (mean := final_loss(logs[0])) is None:
            return None, "no loss is recorded", None
        return mean.estimate(), "mean over the last tenth of the run", None
    if claim.quantity == "loss_ratio":
        found = loss_contrast(logs[:1], logs[1:], Compared())
        of = "the mean losses over the last tenth of the common steps"
        return _ratio(found, Compared().quantity, [of, attributed(logs[:1], logs[1:], of="loss")])
    runs = measure_rates(logs, clock=claim.clock)
    clock = f"{runs[0].clock} clock"
    if claim.quantity == "speedup":
        arms = [Arm(runs=(run,)) for run in runs]
        cause = attributed(logs[:1], logs[1:], of="clock")
        return _ratio(speed_contrast(*arms), SPEED, [clock, cause])
    if (value := _of_one(claim.quantity, runs[0])) is None:
        return None, f"{clock}: no {claim.quantity.replace('_per_', '/')} is recorded", None
    return value, clock, runs[0].why_undetermined if None in (value.low, value.high) else None


def _ratio(
    found: Contrast, quantity: Quantity, basis: Sequence[str]
) -> tuple[Estimate | None, str, str | None]:
    """Return a ratio of two runs, its basis, and why its verdict is withheld if it is not 1."""
    [judged] = verdicts_of([(found, quantity)])
    if judged.word == "not compared" or judged.ratio is None:
        return None, f"{judged.word}: {judged.why}", None
    is_withheld = judged.word == "undetermined" and judged.why != HOLDS_ONE
    why = "; ".join(dict.fromkeys([*basis, *found.remarks]))
    return judged.ratio, why, judged.why if is_withheld else None


def _of_one(quantity: str, run: MeasuredRate) -> Estimate | None:
    if quantity == "step_s" and run.unit == "step":
        return run.seconds.estimate() if run.seconds else None
    per_unit = run.images_per_unit
    if quantity == "images_per_s" and run.rate and per_unit:
        return run.rate.map(lambda rate: rate * per_unit)
    return run.steps_per_s if quantity == "steps_per_s" else None


def _one(run: str) -> RunLog:
    logs = read_logs([run])
    if len(logs) != 1:
        raise Unreadable(f"{run}: {len(logs)} runs in it; a claim names each run")
    return logs[0]
