"""A planted loss is compared at one point of training, over runs that got there."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.analysis_coverage.folders import START, Run, write_run
from tests.analysis.planted.runs import (
    RNG,
    end_as,
    evaluated,
    falling,
    seconds,
    turns,
)


@pytest.mark.parametrize("event", ["stopped", "saved"])
def test_a_repeat_that_was_stopped_or_still_runs_does_not_cut_the_losses_of_all(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]], event: str
) -> None:
    """The other learning rate is better at first and worse in the end."""
    for name, arm, own in turns(4, other=("optimizer.lr=0.0002",)):
        loss = falling(200) * np.exp(0.003 * RNG.standard_normal())
        if arm == "b":
            loss = loss * np.linspace(0.8, 1.2, 200)
        length = 25 if name == "b3" else 200
        planned = Run(seconds=seconds(length), loss=loss[:length], **own)
        run = write_run(tmp_path / name, planned)
        if name == "b3":
            end_as(run, event, steps=2000)
    found = verdicts(tmp_path)["loss"]
    assert found["word"] == "worse"
    assert "without b3, which has 250 of 2000 steps" in found["verdict"]


@pytest.mark.parametrize("gaps", [(15, 25), (13, 17)])
def test_evaluations_at_other_steps_are_compared_at_one(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]], gaps: tuple[int, int]
) -> None:
    """One curve; the second arm's last evaluation is earlier, or none is at a common step."""
    for name, arm, own in turns(4):
        curve = falling(100) * np.exp(0.003 * RNG.standard_normal())
        looks = evaluated(curve, each=gaps[arm == "b"])
        write_run(tmp_path / name, Run(seconds=seconds(100), evaluations=looks, **own))
    found = verdicts(tmp_path)["validation loss"]
    assert found["word"] in ("same", "undetermined")
    assert found["low"] < 1 < found["high"]


def test_other_validations_are_not_compared_and_change_no_training(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]]
) -> None:
    """Other values of t change the measure by 4 %, and another learning rate the training."""
    for name, arm, own in turns(3, other=("validation.strata=4", "optimizer.lr=0.0002")):
        curve = falling() * np.exp(0.003 * RNG.standard_normal()) * (0.8 if arm == "b" else 1)
        looks = evaluated(1.04 * curve if arm == "b" else curve, each=20)
        write_run(tmp_path / name, Run(seconds=seconds(), loss=curve, evaluations=looks, **own))
    found = verdicts(tmp_path)
    assert found["validation loss"]["word"] == "not compared"
    assert "validation.strata: 8 -> 4" in found["validation loss"]["why"]
    assert found["loss"]["word"] == "better"
    assert found["loss"]["differs"] == "the effect of optimizer.lr: 0.0001 -> 0.0002"


@pytest.mark.parametrize("command", ["cells", "compare"])
def test_seeds_that_all_cells_share_find_a_better_loss(
    tmp_path: Path, asked: Callable[..., Any], command: str
) -> None:
    """One of six cells has 4 % less loss; three seeds differ by 3 %, and runs of one by .5 %."""
    shared = 0.03 * RNG.standard_normal(3)
    for seed, cell in itertools.product(range(3), range(6)):
        log = shared[seed] + 0.005 * RNG.standard_normal() - 0.04 * (cell == 5)
        start = START + 1000.0 * (6 * seed + cell)
        run = Run(
            seconds=seconds(40), loss=falling(40) * np.exp(log), seed=seed, starts=(start,),
            overrides=(f"optimizer.lr={cell + 1}.0e-4",),
        )  # fmt: skip
        write_run(tmp_path / f"c{cell}_{seed}", run)
    found = asked(command, tmp_path)
    if command == "cells":
        words = [row["loss_word"] for row in found["cells"][1:]]
    else:
        words = [row["word"] for row in found["comparisons"] if row["quantity"] == "loss"]
    assert words == ["undetermined"] * 4 + ["better"]


def test_what_changed_between_the_attempts_of_a_run_may_have_changed_its_loss(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]]
) -> None:
    """Nine tenths of each second run are of another commit, or of another learning rate."""
    for number in range(3):
        for place, arm in enumerate("abc"):
            loss = falling() * np.exp(0.003 * RNG.standard_normal()) * (0.8 if arm != "a" else 1)
            start = START + 1000.0 * (3 * number + place)
            run = Run(seconds=seconds(), loss=loss, seed=number, starts=(start,), attempts=(0, 108))
            folder = write_run(tmp_path / arm / f"{arm}{number}", run)
            if arm == "b":
                manifest = json.loads((folder / "manifest.json").read_text())
                manifest["attempts"][0]["commit"] = "1" * 40
                (folder / "manifest.json").write_text(json.dumps(manifest))
            if arm == "c":
                (folder / "attempts" / "002").mkdir()
                overrides = folder / "attempts" / "002" / "overrides.yaml"
                overrides.write_text("optimizer: {lr: 0.0003}\n")
    for arm, told in (("b", "code: 000000000000 -> 111111111111, then 000000000000"),
                      ("c", "optimizer.lr: 0.0001 -> 0.0001, then 0.0003")):  # fmt: skip
        found = verdicts(tmp_path / "a", tmp_path / arm)
        assert found["loss"]["differs"] == f"the effect of {told}"


def test_a_loss_that_is_mostly_not_finite_is_not_compared(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    for name in "ab":
        lines = [
            {"step": n, "time": START + n, "loss": float(loss)}
            for n, loss in enumerate(falling(300), 1)
        ]
        for line in lines[200:] if name == "b" else ():
            line["loss"] = line["loss"] if line["step"] % 3 == 0 else math.nan
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    [found] = asked("loss", tmp_path / "a.jsonl", tmp_path / "b.jsonl")["pairs"]
    assert found["why"] == "the loss of b.jsonl is mostly not finite from step 202 on"
