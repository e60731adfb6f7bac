"""Copies, ranks and segments of one training are one run, and repeats are several."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.measure.arms import group_arms
from analysis.measure.rate import measure_rates
from analysis.read.run_log import RunLog
from tests.analysis.foreign_logs import log_of


def run(name: str, *, first: int = 1, last: int = 100, start: float = 0.0, seed: int = 0) -> RunLog:
    """Return a run of about a second per step; `seed` is the scatter of its steps."""
    step = np.arange(first, last + 1)
    time = start + (1 + 0.05 * np.random.default_rng(seed).standard_normal(len(step))).cumsum()
    values = {"time": time, "loss": 1 / np.sqrt(step)}
    log = log_of(values, name=name, steps=step)
    return replace(log, config={"lr": 1, "seed": 7})


WHOLE = run("a")
RANK = run("b", start=0.02)


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([replace(WHOLE, name="b")], "left out: b is a copy, or another rank, of a"),
        ([RANK], "left out: b is a copy, or another rank, of a"),
        (
            [
                run("b", first=101, last=200, start=150.0),
                run("c", first=202, last=250, start=300.0),
            ],
            "left out: a is a segment of the training of c",
        ),
        (
            [run("b", first=81, last=200, start=150.0)],
            "left out: a is a segment of the training of b",
        ),
    ],
)
def test_what_is_of_one_training_is_one_run(others, why):
    (arm,) = group_arms(measure_rates([WHOLE, *others]))
    assert arm.name == why.split()[-1]
    assert why in arm.runs[0].remarks


@pytest.mark.parametrize(
    "other",
    [
        run("b", seed=1),
        run("b", start=5000.0),
        replace(RANK, config={"lr": 1, "seed": 8}),
        run("b", first=101, last=200, start=-500.0),
    ],
)
def test_repeats_stay_several(other):
    (arm,) = group_arms(measure_rates([WHOLE, other]))
    assert len(arm.runs) == 2


def test_logs_of_one_training_in_one_folder_count_once():
    """As Lightning or accelerate write beside each other, with other digits."""
    digits = replace(WHOLE, name="b", values=WHOLE.values | {"loss": WHOLE.column("loss").round(4)})
    stamps = digits.values | {"time": np.floor(WHOLE.column("time"))}
    other = run("c", seed=1, start=5000.0)
    logs = [WHOLE, digits, replace(digits, name="d", values=stamps), other]
    arms = group_arms(measure_rates([replace(log, config=None) for log in logs]))
    assert [arm.name for arm in arms] == ["a", "c"]
    assert len(arms[0].runs[0].remarks) >= 2


def test_the_output_of_a_job_that_resumed_another_is_of_the_same_training():
    first = replace(WHOLE, name="slurm-1.out", path=Path("base/slurm-1.out"), config=None)
    again = run("slurm-2.out", first=81, last=200, start=150.0)
    again = replace(again, path=Path("base/slurm-2.out"), config=None)
    elsewhere = replace(again, name="other", path=Path("other/slurm-2.out"))
    arms = group_arms(measure_rates([first, again, elsewhere]))
    assert [arm.name for arm in arms] == ["slurm-2.out", "other"]
    told = "left out: slurm-1.out is a segment of the training of slurm-2.out"
    assert told in arms[0].runs[0].remarks


def test_runs_of_a_sweep_that_started_together_stay_several():
    logs = [WHOLE, replace(RANK, values=RANK.values | {"loss": 0.9 * RANK.column("loss")})]
    assert len(group_arms(measure_rates([replace(log, config=None) for log in logs]))) == 2


def test_the_logs_of_checkpoints_are_parts_of_the_last_one():
    """As Hugging Face's Trainer leaves its state in each checkpoint, and events in `runs`."""
    logs = []
    for last in (40, 80, 100):
        kept = {"loss": WHOLE.column("loss")[:last]}
        log = log_of(kept, name=f"{last}", steps=WHOLE.step[:last])
        logs.append(replace(log, path=Path(f"out/checkpoint-{last}/trainer_state.json")))
    events = replace(WHOLE, name="events", path=Path("out/runs/March/events.out"), config=None)
    (arm,) = group_arms(measure_rates([*logs, events]))
    assert arm.name == "events"
