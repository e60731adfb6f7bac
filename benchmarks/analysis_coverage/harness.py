"""Run scenarios, count what is right and wrong, and judge the counts against the bars.

The bars are the promise: at least 93 % of the 95 % intervals hold the truth, at most 6 % of the
tables have a false verdict, and a planted difference is found at most 10 points less often than by
the best test that knows the class. A count fails if its 95 % interval (Clopper and Pearson 1934)
excludes the bar, so that a scenario with few draws is not failed by chance.
"""

import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from scipy.special import betaincinv

from benchmarks.analysis_coverage.scenario import Case, Scenario, Truth
from benchmarks.analysis_coverage.verdicts import (
    CLAIMS,
    FOUND,
    GIVEN,
    REFUSED,
    Answer,
    Judgement,
    ask,
    ask_process,
    judgements,
)

COVERAGE_BAR, FALSE_BAR, POWER_GAP = 0.93, 0.06, 0.10
# The largest share of the pairs in the shipped archives, which are no sample of anything.
EXACT_BAR = 0.05
Ask = Callable[[list[str]], Answer]


@dataclass(frozen=True, kw_only=True)
class Share:
    """A count out of a number of trials."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        """The share, None without a trial."""
        return self.count / self.of if self.of else None

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval of Clopper and Pearson."""
        return float(betaincinv(self.count, self.of - self.count + 1, 0.025)) if self.count else 0.0

    @property
    def high(self) -> float:
        """The upper end."""
        rest = self.of - self.count
        return float(betaincinv(self.count + 1, rest, 0.975)) if rest else 1.0


@dataclass(kw_only=True)
class Tally:
    """Counts over the draws of a scenario, or of several.

    `rows` have a truth, `given` of them an interval that `covered` holds the truth; `silent` ones
    claim nothing and `refused` ones are not compared. `tables` are draws, `false_tables` those with
    a verdict that is not true. Of `planted` rows `found` were found by the command, and `oracle` by
    the best test. `bugs` are draws on which the command failed. With `exact` the share of false
    tables is itself held against its bar, not its interval.
    """

    tables: int = 0
    rows: int = 0
    given: int = 0
    covered: int = 0
    silent: int = 0
    refused: int = 0
    false_tables: int = 0
    planted: int = 0
    found: int = 0
    oracle: int = 0
    bugs: int = 0
    exact: bool = False
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add the counts of another tally."""
        for name, value in vars(other).items():
            if name not in ("examples", "exact"):
                setattr(self, name, getattr(self, name) + value)

    @property
    def coverage(self) -> Share:
        """Intervals that hold the truth, of those given."""
        return Share(count=self.covered, of=self.given)

    @property
    def false(self) -> Share:
        """Tables with a false verdict."""
        return Share(count=self.false_tables, of=self.tables)

    @property
    def power(self) -> Share:
        """Planted differences, or figures, that were found."""
        return Share(count=self.found, of=self.planted)

    def failures(self) -> list[str]:
        """Return which bars are missed."""
        found = ["crashes"] if self.bugs else []
        if self.given and self.coverage.high < COVERAGE_BAR:
            found.append("coverage")
        value = self.false.value or 0.0
        if value > EXACT_BAR if self.exact else self.false.low > FALSE_BAR:
            found.append("false")
        if self.planted and self.power.high < self.oracle / self.planted - POWER_GAP:
            found.append("power")
        return found


@dataclass(frozen=True, kw_only=True)
class Result:
    """The tally of one scenario."""

    topic: str
    scenario: str
    tally: Tally
    note: str = ""

    def to_json(self) -> str:
        """Return one line of JSON."""
        tally = self.tally
        shares = {
            name: [share.value, share.low, share.high] if share.of else None
            for name, share in (
                ("coverage", tally.coverage), ("false", tally.false), ("power", tally.power)
            )
        }  # fmt: skip
        return json.dumps(
            {"topic": self.topic, "scenario": self.scenario, "note": self.note}
            | {"fails": tally.failures()}
            | shares
            | asdict(tally)
        )


def run_scenario(
    scenario: Scenario, *, share: float = 1.0, seed: int = 0, command: Ask = ask
) -> Result:
    """Ask the command about every draw of a scenario and return the counts.

    `share` of the draws are made, at least ten. `seed` changes all draws.
    """
    tally, begun = Tally(), time.process_time()
    key = [seed, *scenario.topic.encode(), *scenario.name.encode()]
    for draw in range(max(10, round(scenario.draws * share))):
        folder = Path(tempfile.mkdtemp(prefix="coverage-"))
        try:
            case = scenario.make(np.random.default_rng([*key, draw]), folder)
            _count(tally, scenario.kind, case, command)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    tally.seconds = round(time.process_time() - begun, 2)
    return Result(topic=scenario.topic, scenario=scenario.name, tally=tally, note=scenario.note)


def _count(tally: Tally, kind: str, case: Case, command: Ask) -> None:
    """Count one draw, at all of its looks: a false verdict at any of them is one."""
    looks = case.looks or (lambda: None,)
    is_false = False
    for prepare in looks:
        prepare()
        answer = command(case.argv)
        found = judgements(kind, answer)
        wrong = [f"{one.word} {one.ratio}" for one in found if is_wrong(one, _truth(one, case))]
        is_false |= bool(wrong)
        tally.examples += wrong[: 3 - len(tally.examples)]
    tally.tables += 1
    tally.false_tables += is_false
    tally.bugs += answer.is_bug
    if answer.is_bug or (not found and kind != "findings"):
        tally.examples += [answer.remarks.strip()[-200:]][: 3 - len(tally.examples)]
    _count_rows(tally, case, found)


def _count_rows(tally: Tally, case: Case, found: Sequence[Judgement]) -> None:
    """Count the rows of the last look; a truth without a row counts as silence."""
    pairs = [(one, truth) for one in found if (truth := _truth(one, case)) is not None]
    missing = [t for key, t in case.truths.items() if not any(t is truth for _, truth in pairs)]
    for one, truth in pairs:
        tally.rows += 1
        tally.silent += one.word not in CLAIMS and one.word not in (GIVEN, FOUND, REFUSED)
        tally.refused += one.word == REFUSED
        value = truth.of_these if one.is_of_these and truth.of_these else truth.value
        if one.low is not None and one.high is not None and value is not None:
            tally.given += 1
            tally.covered += bool(one.low <= value <= one.high)
        _count_power(tally, truth, is_found(one, truth))
    for truth in missing:
        tally.rows += 1
        tally.silent += 1
        _count_power(tally, truth, False)


def _count_power(tally: Tally, truth: Truth, found: bool) -> None:
    if truth.planted:
        tally.planted += 1
        tally.found += bool(found)
        tally.oracle += bool(truth.oracle)


def _truth(one: Judgement, case: Case) -> Truth | None:
    """Return the truth behind a row: the longest key that its name holds."""
    keys = [key for key in case.truths if key in one.name]
    return case.truths[max(keys, key=len)] if keys else None


def is_wrong(one: Judgement, truth: Truth | None) -> bool:
    """Return whether a row claims what is not so; a row that speaks of these runs may say so."""
    if one.word == FOUND:
        return truth is None or not truth.planted
    if truth is None or one.word not in CLAIMS:
        return False
    if one.word == "same":
        return not truth.is_same
    is_of_these = one.word == "different" and one.is_of_these and not truth.strict
    value = truth.of_these if is_of_these else truth.value
    log = 0.0 if value is None else math.log(value)
    if abs(log) < 1e-9:
        return True
    direction = CLAIMS[one.word]
    return direction is not None and direction * log < 0


def is_found(one: Judgement, truth: Truth) -> bool:
    """Return whether a row says what was planted: a difference of the right sign, or a figure."""
    if one.word == FOUND:
        return True
    if one.word == GIVEN:
        assert one.low is not None
        assert one.high is not None
        return one.low > 0 and math.log(one.high / one.low) / 2 <= truth.widest
    if one.word == "same":
        return truth.is_same
    return one.word in CLAIMS and not is_wrong(one, truth)


def processes_agree(scenarios: Sequence[Scenario], *, seed: int = 0) -> Result:
    """Ask real processes about one draw of each kind: they must say what was said here."""
    tally, begun = Tally(exact=True), time.process_time()
    first = {one.kind: one for one in reversed(scenarios)}
    for scenario in first.values():
        folder = Path(tempfile.mkdtemp(prefix="coverage-"))
        try:
            case = scenario.make(np.random.default_rng(seed), folder)
            here, there = ask(case.argv), ask_process(case.argv)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        tally.tables += 1
        if (here.payload, here.code) != (there.payload, there.code):
            tally.false_tables += 1
            tally.examples.append(f"{scenario.kind}: {there.remarks[-200:]}")
    tally.seconds = round(time.process_time() - begun, 2)
    return Result(topic="real processes", scenario="one call of each command", tally=tally)
