"""A planted loss is compared at one point of training, over runs that got there."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from benchmarks.analysis_coverage.folders import START, Run, write_run
from benchmarks.analysis_coverage.processes import averaged
from tests.analysis.conftest import Asked
from tests.analysis.planted.runs import RNG, Verdicts, end_as, evaluated, falling, seconds, turns
from tests.analysis.synthetic_runs import rewrite, rewrite_manifest, write_lines


@pytest.mark.parametrize("event", ["stopped", "saved"])
def test_a_repeat_that_was_stopped_or_still_runs_does_not_cut_the_losses_of_all(
    tmp_path: Path, verdicts: Verdicts, event: str
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


def test_seeds_that_survive_are_not_better_than_all(tmp_path: Path, verdicts: Verdicts) -> None:
    """Half of the seeds of the other learning rate diverge, and were stopped by hand."""
    for name, arm, own in turns(6, other=("optimizer.lr=0.001",)):
        loss = falling(200) * np.exp(0.003 * RNG.standard_normal()) * (0.9 if arm == "b" else 1)
        is_lost = arm == "b" and own["seed"] % 2
        loss = np.where(np.arange(200) > 60, 6.0, loss) if is_lost else loss
        length = 90 if is_lost else 200
        run = write_run(tmp_path / name, Run(seconds=seconds(length), loss=loss[:length], **own))
        if is_lost:
            end_as(run, "stopped", steps=2000)
    found = verdicts(tmp_path)["loss"]
    assert found["word"] == "different"
    assert "b1, which ended early, had a higher loss than those that count" in found["verdict"]


def test_an_evaluation_that_became_nan_is_not_the_one_before(
    tmp_path: Path, verdicts: Verdicts
) -> None:
    for name, arm, own in turns(3, other=LR):
        loss = falling(100) * (0.9 if arm == "b" else 1) * np.exp(0.003 * RNG.standard_normal())
        looks: dict[int, dict[str, float]] = evaluated(loss, each=10)
        looks |= {89: {}, 99: {}} if name == "b1" else {}
        write_run(tmp_path / name, Run(seconds=seconds(100), evaluations=looks, **own))
    found = verdicts(tmp_path)["validation loss"]
    assert found["why"] == "an evaluation of b1 at step 1000 recorded no finite value"


def test_an_arm_that_is_in_its_first_half_is_better_only_so_far(
    tmp_path: Path, verdicts: Verdicts
) -> None:
    for name, arm, own in turns(3, other=("optimizer.lr=0.0002",)):
        length = 30 if arm == "b" else 200
        loss = falling(200)[:length] * np.exp(0.003 * RNG.standard_normal())
        planned = Run(seconds=seconds(length), loss=loss * (0.9 if arm == "b" else 1), **own)
        run = write_run(tmp_path / name, planned)
        if arm == "b":
            end_as(run, "saved", steps=2000)
    found = verdicts(tmp_path)["loss"]
    assert found["word"] == "different"
    assert "b0 ends before others" in found["verdict"]


@pytest.mark.parametrize("gaps", [(15, 25), (13, 17)])
def test_evaluations_at_other_steps_are_compared_at_one(
    tmp_path: Path, verdicts: Verdicts, gaps: tuple[int, int]
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
    tmp_path: Path, verdicts: Verdicts
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
    tmp_path: Path, asked: Asked, command: str
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
    tmp_path: Path, verdicts: Verdicts
) -> None:
    """Nine tenths of each second run are of another commit, or of another learning rate."""
    for number in range(3):
        for place, arm in enumerate("abc"):
            loss = falling() * np.exp(0.003 * RNG.standard_normal()) * (0.8 if arm != "a" else 1)
            start = START + 1000.0 * (3 * number + place)
            run = Run(seconds=seconds(), loss=loss, seed=number, starts=(start,), attempts=(0, 108))
            folder = write_run(tmp_path / arm / f"{arm}{number}", run)
            if arm == "b":
                rewrite_manifest(folder, lambda first: first.update(commit="1" * 40))
            if arm == "c":
                (folder / "attempts" / "002").mkdir()
                overrides = folder / "attempts" / "002" / "overrides.yaml"
                overrides.write_text("optimizer: {lr: 0.0003}\n")
    for arm, told in (("b", "code: 000000000000 -> 111111111111, then 000000000000"),
                      ("c", "optimizer.lr: 0.0001 -> 0.0001, then 0.0003")):  # fmt: skip
        found = verdicts(tmp_path / "a", tmp_path / arm)
        assert found["loss"]["differs"].endswith(told)


def test_a_loss_that_is_mostly_not_finite_is_not_compared(tmp_path: Path, asked: Asked) -> None:
    for name in "ab":
        lines = [
            {"step": n, "time": START + n, "loss": float(loss)}
            for n, loss in enumerate(falling(300), 1)
        ]
        for line in lines[200:] if name == "b" else ():
            line["loss"] = line["loss"] if line["step"] % 3 == 0 else math.nan
        write_lines(tmp_path / f"{name}.jsonl", lines)
    [found] = asked("loss", tmp_path / "a.jsonl", tmp_path / "b.jsonl")["pairs"]
    assert found["why"] == "the loss of b.jsonl is mostly not finite from step 202 on"


LR = ("optimizer.lr=0.0002",)


@pytest.mark.parametrize(("each", "batch"), [(250, 64), (10, 512)])
def test_records_that_average_over_more_of_a_curve_are_compared_over_the_same_part(
    tmp_path: Path, verdicts: Verdicts, each: int, batch: int
) -> None:
    """One falling curve over images, averaged over 10 steps of 64 images or over more."""
    for repeats in (3, 1):
        for name, arm, own in turns(repeats, other=LR):
            every, size = (each, batch) if arm == "b" else (10, 64)
            number = 1000 * 64 // (every * size)
            images = size * np.arange(1.0, number * every + 1)
            curve = (images / 3200 + 1) ** -0.3 * np.exp(0.003 * RNG.standard_normal())
            loss = curve.reshape(number, every).mean(axis=1)
            run = Run(seconds=seconds(number), loss=loss, every=every, batch=size, **own)
            write_run(tmp_path / f"{repeats}" / name, run)
        found = verdicts(tmp_path / f"{repeats}")["loss"]
        assert found["word"] in ("same", "undetermined")
        assert repeats == 1 or found["low"] < 1 < found["high"]


@pytest.mark.parametrize("gaps", [((30, 60, 90), (40, 80)), ((10, 40, 70, 100), (10, 35, 60, 85))])
def test_evaluations_are_compared_near_the_end_though_only_an_early_one_is_at_one_step(
    tmp_path: Path, verdicts: Verdicts, gaps: tuple[tuple[int, ...], ...]
) -> None:
    """The second arm falls to .8 times the first; both were also evaluated at step 0."""
    for name, arm, own in turns(3, other=LR):
        curve = falling(100) * np.exp(0.003 * RNG.standard_normal())
        curve = curve * 0.8 ** (np.arange(1, 101) / 100 if arm == "b" else 0)
        looks = {n - 1: {"validation_loss": float(curve[n - 1])} for n in gaps["ab".index(arm)]}
        run = write_run(tmp_path / name, Run(seconds=seconds(100), evaluations=looks, **own))
        first, *lines = (run / "metrics.jsonl").read_text().splitlines()
        begun = {"time": START, "attempt": 1, "step": 0, "images": 0, "validation_loss": 1.7}
        (run / "metrics.jsonl").write_text("\n".join([first, json.dumps(begun), *lines]) + "\n")
    found = verdicts(tmp_path)["validation loss"]
    assert found["word"] == "better"
    assert found["ratio"] == pytest.approx(0.83, abs=0.02)


@pytest.mark.parametrize("other", ["image", "frame", "episode"])
def test_losses_by_records_that_count_other_things_are_not_compared(
    tmp_path: Path, asked: Asked, other: str
) -> None:
    for name, count in (("a", "step"), ("b", f"{other}s")):
        rows = [f"{n if count == 'step' else 8 * n},{loss}" for n, loss in enumerate(falling())]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"{count},loss", *rows]) + "\n")
    [found] = asked("loss", tmp_path / "a.csv", tmp_path / "b.csv")["pairs"]
    assert found["word"] == "not compared"
    assert "a.csv counts steps and b.csv counts" in found["why"]


@pytest.mark.parametrize("decay", [0.99, 0.999])
def test_the_first_value_of_a_running_mean_is_no_difference(
    tmp_path: Path, asked: Asked, decay: float
) -> None:
    """One recipe; each record keeps its share of a first loss that was off by its noise."""
    words = []
    for draw in range(8):
        for name in ("a", "b"):
            raw = falling(200) * np.exp(0.3 * RNG.standard_normal(200))
            loss = averaged(raw, decay=decay)
            rows = [{"step": 10 * n, "loss": one} for n, one in enumerate(loss, 1)]
            write_lines(tmp_path / f"{name}{draw}.jsonl", rows)
        files = [tmp_path / f"{name}{draw}.jsonl" for name in "ab"]
        [found] = asked("loss", *files)["pairs"]
        words.append(found["word"])
    assert "different" not in words
    assert "is an average over too many records to tell its noise" in found["why"]


@pytest.mark.parametrize(
    ("is_event", "last", "told"),
    [(True, 100, "from step 310 on"), (False, 100, "from step 310 on"),
     (False, 35, "in 5 records from step 310")],
)  # fmt: skip
def test_a_repeat_that_diverged_is_not_left_out_as_one_that_was_cut_off(
    tmp_path: Path, verdicts: Verdicts, is_event: bool, last: int, told: str
) -> None:
    for name, arm, own in turns(4, other=LR):
        length = 30 if name == "b3" and is_event else 100
        loss = falling(100) * np.exp(0.003 * RNG.standard_normal()) * (0.9 if arm == "b" else 1)
        loss[30 : last if name == "b3" else 30] = np.nan
        run = write_run(tmp_path / name, Run(seconds=seconds(length), loss=loss[:length], **own))
        if name == "b3" and is_event:
            failed = {"event": "failed", "reason": "nan", "step": 310}
            rewrite(run, lambda one, failed=failed: one | (failed if "event" in one else {}))
    found = verdicts(tmp_path)["loss"]
    assert found["why"] == f"the loss of b3 is not finite {told}"


def distance(true: float, *, samples: int = 5000, **facts: Any) -> dict[str, Any]:
    """Return an evaluation of samples, `fid` with its bias."""
    facts = {"guidance": 1.5, "features": "Inception"} | facts
    found = {"fid": true + 20_000 / samples, "fid_inf": true, "fid_samples": samples}
    return found | {"fid_blocks": [true, true], "fid_facts": facts}


@pytest.mark.parametrize(
    ("of", "other", "why"),
    [
        ("fid", {"samples": 2500}, "other number of samples"),
        ("fid_inf", {"features": "dino"}, "other features"),
        ("fid_inf", {"guidance": 4.0}, "other guidance"),
    ],
)
def test_distances_that_were_measured_unlike_are_compared_nowhere(
    tmp_path: Path,
    asked: Asked,
    capsys: pytest.CaptureFixture[str],
    of: str,
    other: dict[str, Any],
    why: str,
) -> None:
    for name, arm, own in turns(3, other=LR):
        true = 5 + 60 / np.arange(1, 11) * np.exp(0.01 * RNG.standard_normal())
        told = other if arm == "b" else {}
        looks = {10 * n + 9: distance(float(one), **told) for n, one in enumerate(true)}
        write_run(tmp_path / name, Run(seconds=seconds(100), evaluations=looks, **own))
    _, found = asked("cells", "--of", of, tmp_path)["cells"]
    assert found["loss_why"] == why
    assert main(["target", "--target", f"{of}<=30", str(tmp_path)]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(("place", "word"), [(0, "different"), (150, "different"), (295, None)])
def test_a_loss_of_0_costs_the_verdict_only_near_the_end(
    tmp_path: Path, asked: Asked, place: int, word: str | None
) -> None:
    for name in "ab":
        loss = falling(300) * np.exp(0.02 * RNG.standard_normal(300)) * (0.7 if name == "b" else 1)
        loss[place] *= name == "a"
        lines = [{"step": n, "loss": float(one)} for n, one in enumerate(loss, 1)]
        write_lines(tmp_path / f"{name}.jsonl", lines)
    [found] = asked("loss", tmp_path / "a.jsonl", tmp_path / "b.jsonl")["pairs"]
    assert found["word"] == (word or "undetermined")
    assert word is None or found["low"] < 0.7 < found["high"]


def test_all_runs_of_one_seed_count_and_claim_nothing_about_other_seeds(
    tmp_path: Path, verdicts: Verdicts
) -> None:
    """The first repeat of the second arm is better than the base, and the others are worse."""
    for name, _, own in turns(3, other=("optimizer.lr=0.0002",)):
        ratio = {"b0": 0.9, "b1": 1.2, "b2": 1.2}.get(name, 1.0)
        loss = falling() * ratio * np.exp(0.003 * RNG.standard_normal())
        write_run(tmp_path / name, Run(seconds=seconds(), loss=loss, **{**own, "seed": 0}))
    found = verdicts(tmp_path)["loss"]
    assert found["word"] == "undetermined"
    assert "3 runs a side" in found["verdict"]
    assert "of one seed" in found["verdict"]
    assert found["low"] < (0.9 * 1.2**2) ** (1 / 3) < found["high"]
