"""Arms that took turns on a node are compared round by round, and the node's drift drops out."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.measure.arms import Arm
from analysis.measure.rate import measure_rate, turn_rates
from analysis.measure.speed import speed_contrast
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from analysis.stats.replicates import Contrast
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

ROUNDS, RECORDS, EVERY = 6, 25, 10
CASES, RATIO = 200, 1.03


def log_of(name: str, seconds: Floats, *, session: str = "1", records: int = RECORDS) -> RunLog:
    """Return a run whose turns took `seconds` [turns] per step, each in an attempt of its own."""
    turns, rows = len(seconds), len(seconds) * records
    step = EVERY * np.arange(1, rows + 1)
    spent = EVERY * np.cumsum(np.repeat(seconds, records) * scatter(name, rows))
    return RunLog(
        name=name, path=Path(name), format="ditbench", step=step,
        attempt=np.repeat(np.arange(1, turns + 1), records), line=step,
        values={"train_s": spent, "images": 64.0 * step},
        turns={turn: f"{session}:{turn * EVERY * records}" for turn in range(1, turns + 1)},
    )  # fmt: skip


def scatter(name: str, rows: int) -> Floats:
    """Return the noise of intervals [rows], the same whenever a run of this name is made."""
    rng = np.random.default_rng(list(name.encode()))
    return np.exp(0.02 * rng.standard_normal(rows))


def planted(case: int) -> tuple[RunLog, RunLog]:
    """Return a slow and a fast run that took turns on a node whose speed wanders by 4 % a turn."""
    rng = np.random.default_rng(case)
    node = np.cumsum(0.04 * rng.standard_normal(2 * ROUNDS)).reshape(ROUNDS, 2)
    own = node + 0.005 * rng.standard_normal((ROUNDS, 2))
    first = np.repeat(rng.integers(2, size=ROUNDS // 2), 2)
    first[1::2] = 1 - first[1::2]
    slow, fast = (own[np.arange(ROUNDS), place] for place in (first, 1 - first))
    return log_of(f"slow{case}", np.exp(slow) * RATIO), log_of(f"fast{case}", np.exp(fast))


def paired(above: list[RunLog], below: list[RunLog]) -> Contrast:
    arms = [
        Arm(runs=tuple(measure_rate(log, clock="train") for log in logs)) for logs in (below, above)
    ]
    return speed_contrast(*arms)


def test_intervals_of_paired_rounds_hold_the_truth_though_the_node_drifts() -> None:
    held = 0
    for case in range(CASES):
        slow, fast = planted(case)
        found = paired([fast], [slow])
        assert (found.unit, found.n) == ("round", ROUNDS)
        assert found.mean is not None
        ratio = found.mean.estimate().map(math.exp)
        assert ratio.low is not None
        assert ratio.high is not None
        held += ratio.low <= RATIO <= ratio.high
    assert 0.92 <= held / CASES <= 0.98


def test_only_rounds_of_one_session_pair_and_fewer_than_three_are_none() -> None:
    a, b, again = (
        log_of(name, np.full(4, 0.1), session=one) for name, one in zip("abc", "112", strict=True)
    )
    assert paired([a], [b]).unit == "round"
    for other, shared in ((again, 0), (log_of("d", np.full(2, 0.1)), 2)):
        found = paired([a], [other])
        assert found.mean is not None
        assert (found.n, found.mean.error) == (shared, None)


def test_repeats_share_a_round_and_a_turn_too_short_to_cut_its_warm_up_is_left_out() -> None:
    steady, drifting = np.full(3, 0.1), np.array([0.1, 0.2, 0.4])
    found = paired([log_of("a", drifting), log_of("b", drifting)], [log_of("c", drifting * 2)])
    assert found.mean is not None
    assert found.mean.value == pytest.approx(math.log(2), abs=0.02)
    assert turn_rates(log_of("d", steady, records=10), clock="train") == {}
    assert list(turn_rates(log_of("e", steady), clock="train")) == ["1:250", "1:500", "1:750"]


def test_the_warm_up_of_every_turn_is_cut() -> None:
    slow_start = log_of("a", np.full(3, 0.1))
    spent = np.diff(slow_start.column("train_s"), prepend=0.0)
    spent[np.arange(len(spent)) % RECORDS < 5] *= 3
    slow_start.values["train_s"][:] = np.cumsum(spent)  # type: ignore[index]
    rates = turn_rates(slow_start, clock="train")
    assert list(rates.values()) == pytest.approx([math.log(10)] * 3, abs=0.03)


def in_turns(folder: Path, *, factors: list[float], **truth: float) -> str:
    """Generate a run of turns of 200 steps, each slower by a factor than the rate."""
    generate_run(folder, SyntheticRun(intervals=20 * len(factors), cv=0.005, **truth))  # type: ignore[arg-type]
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    spent = before = 0.0
    for record in records:
        if "train_s" in record:
            number = (record["step"] - 1) // 200
            spent, before = (
                spent + (record["train_s"] - before) * factors[number],
                record["train_s"],
            )
            record |= {"attempt": number + 1, "train_s": spent}
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    manifest = json.loads((folder / "manifest.json").read_text())
    numbers = range(1, len(factors) + 1)
    turns = [{"attempt": n, "turn": f"1120-093000-1a2b:{200 * n}"} for n in numbers]
    manifest["attempts"] = [manifest["attempts"][0] | turn for turn in turns]
    for number in numbers:
        (folder / "attempts" / f"{number:03d}").mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)


def test_every_table_says_that_rounds_were_paired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = [1.0, 1.4, 0.8, 1.2]
    a = in_turns(tmp_path / "a", factors=node)
    b = in_turns(tmp_path / "b", factors=node, steps_per_s=4.2, global_batch=128, seed=1)
    for command, key in (("speed", None), ("cells", "cells")):
        assert main([command, a, b, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        _, row = found[key] if key else found
        assert (row["word"], row["unit"], row["n"]) == ("faster", "round", 4)
        assert row["low"] < 2 * 1.05 < row["high"]
        assert "(4 rounds" in row["verdict"]
