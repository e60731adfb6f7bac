"""Times and samples to a planted target, however it is evaluated."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from benchmarks.analysis_coverage.folders import START, Run, write_run
from tests.analysis.conftest import Asked
from tests.analysis.planted.runs import RNG, WORKERS, evaluated, falling, seconds, turns
from tests.analysis.synthetic_runs import rewrite_manifest


def test_a_target_by_name_is_the_best_value_that_every_run_reached(
    tmp_path: Path, asked: Asked
) -> None:
    """Samples = 100,000 (1 + B / 256), and more accuracy is better."""
    for batch in (64, 128, 256, 512, 1024):
        for seed in range(2):
            need = 1e5 * (1 + batch / 256) * np.exp(0.02 * RNG.standard_normal())
            images = 10.0 * batch * np.arange(1, int(2 * need / (10 * batch)) + 10)
            accuracy = 1 - 0.25 * (need / images) ** 0.3
            write_run(
                tmp_path / f"{batch}-{seed}",
                Run(
                    seconds=seconds(len(images)),
                    batch=batch,
                    seed=seed,
                    evaluations={n: {"eval_accuracy": one} for n, one in enumerate(accuracy)},
                    starts=(START + 10_000.0 * seed + batch,),
                ),
            )
    options = ("target", "--critical-batch", tmp_path, "--target")
    found = asked(*options, "eval_accuracy")
    assert found["b_crit_low"] < 256 < found["b_crit_high"]
    assert main([*map(str, options), "eval_accuracy<=0.9"]) == 1  # met at the first value


def test_evaluations_that_are_far_apart_do_not_make_a_run_slower_to_a_target(
    tmp_path: Path, asked: Asked
) -> None:
    """One curve, evaluated each 20 or each 400 steps."""
    for name, arm, own in turns(4):
        curve = falling(200) * np.exp(0.003 * RNG.standard_normal())
        looks = evaluated(curve, each=2 if arm == "a" else 40)
        write_run(tmp_path / name, Run(seconds=seconds(200), evaluations=looks, **own))
    for goal in (0.36, 0.33):
        _, found = asked("target", "--target", f"validation_loss<={goal}", tmp_path)["groups"]
        assert found["low"] < 1 < found["high"]
        assert "times as fast to the target" in found["verdict"]


def test_evaluations_that_are_far_apart_move_no_critical_batch_out_of_its_interval(
    tmp_path: Path, asked: Asked
) -> None:
    """Samples = 100,000 (1 + B / 256), evaluated each 400 steps of every batch."""
    for batch in (64, 128, 256, 512, 1024):
        for seed in range(3):
            need = 1e5 * (1 + batch / 256) * np.exp(0.02 * RNG.standard_normal())
            images = 10.0 * batch * np.arange(1, int(2.5 * need / (10 * batch)) + 40)
            loss = 0.5 * (need / images) ** 0.3
            run = Run(
                seconds=seconds(len(images)),
                batch=batch,
                seed=seed,
                evaluations=evaluated(loss, each=40),
                starts=(START + 10_000.0 * seed + batch,),
            )
            write_run(tmp_path / f"{batch}-{seed}", run)
    found = asked("target", "--critical-batch", tmp_path, "--target", "validation_loss<=.5")
    assert found["b_crit_low"] < 256 < found["b_crit_high"]


def test_a_time_to_a_target_that_was_spent_in_a_queue_says_so(tmp_path: Path, asked: Asked) -> None:
    for name, arm, own in turns(4, apart=20_000.0):
        [start] = own["starts"]
        own["starts"] = start, start + 80.0 + (3600.0 if arm == "b" else 0.0)
        loss = falling(200) * np.exp(0.003 * RNG.standard_normal())
        write_run(tmp_path / name, Run(seconds=seconds(200), loss=loss, attempts=(0, 20), **own))
    _, found = asked("target", "--target", "loss<=.36", tmp_path)["groups"]
    assert "as fast to the target as a0" in found["verdict"]
    assert "of which time without training makes 0.0" in found["verdict"]


def test_a_target_that_was_neared_on_another_machine_supports_no_claim(
    tmp_path: Path, asked: Asked
) -> None:
    """The first 60 records of the second arm ran on a GPU three times as fast."""
    for name, arm, own in turns(4, apart=3000.0):
        each = seconds(200)
        each[:60] /= 3 if arm == "b" else 1
        loss = falling(200) * np.exp(0.003 * RNG.standard_normal())
        run = write_run(tmp_path / name, Run(seconds=each, loss=loss, attempts=(0, 60), **own))
        if arm == "b":
            rewrite_manifest(run, lambda first: first["placement"][0].update(gpu="NVIDIA H100"))
    _, found = asked("target", "--target", "loss<=.36", tmp_path)["groups"]
    assert found["word"] == "different"
    assert "attempts of b0 differ in gpu" in found["verdict"]
    paths = (tmp_path / "a0", tmp_path / "b0")
    [loss] = asked("loss", "--by", "train_s", *paths)["pairs"]
    assert "attempts of b0 differ in gpu" in loss["verdict"]


def test_runs_of_one_batch_that_differ_are_no_repeats_of_a_critical_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(name: str, batch: int, *overrides: str) -> None:
        images = 10.0 * batch * np.arange(1, 200)
        loss = np.asarray(0.5 * (1e5 * (1 + batch / 256) / images) ** 0.3, dtype=np.float64)
        run = Run(seconds=seconds(199), loss=loss, batch=batch, overrides=overrides)
        write_run(tmp_path / name, run)

    for batch in (256, 512, 1024):
        write(f"{batch}", batch)
        shutil.copytree(tmp_path / f"{batch}", tmp_path / f"{batch}-copy")
    command = ["target", "--critical-batch", str(tmp_path), "--target", "loss<=.5"]
    main(command)
    assert "left out: 256-copy is a copy, or another rank, of 256" in capsys.readouterr().err
    write("256-lr", 256, "optimizer.lr=0.0002")
    assert main(command) == 2
    assert "have one batch and differ in optimizer.lr" in capsys.readouterr().err


def test_more_looks_at_a_noisy_evaluation_make_no_run_faster_to_a_target(
    tmp_path: Path, asked: Asked
) -> None:
    """One curve with a noise of 3 % on each evaluation, each 20 or each 200 steps."""
    false = 0
    for draw in range(8):
        for name, arm, own in turns(5, apart=1500.0):
            curve = falling(200) * np.exp(0.03 * RNG.standard_normal(200))
            looks = evaluated(curve, each=2 if arm == "a" else 20)
            run = Run(seconds=seconds(200), evaluations=looks, **own)
            write_run(tmp_path / f"{draw}" / name, run)
        found = asked("target", "--target", "validation_loss<=.36", tmp_path / f"{draw}")
        false += found["groups"][1]["word"] in ("faster", "slower", "different")
    assert false <= 1


@pytest.mark.parametrize(("of", "goal"), [("validation_loss", 0.3), ("loss", 0.3)])
def test_the_noisier_of_two_equal_curves_reaches_no_target_first(
    tmp_path: Path, asked: Asked, of: str, goal: float
) -> None:
    """Near the plateau, with a noise of 1 or 10 % (of evaluations .3 or 3 %)."""
    false = 0
    for draw in range(6):
        for name, arm, own in turns(5, apart=2000.0):
            curve = falling(200) * np.exp(0.003 * RNG.standard_normal())
            noise = {"a": 0.01, "b": 0.1}[arm] * (0.3 if of != "loss" else 1)
            noisy = curve * np.exp(noise * RNG.standard_normal(200))
            looks = evaluated(noisy, each=4) if of != "loss" else {}
            run = Run(seconds=seconds(200), loss=noisy, evaluations=looks, **own)
            write_run(tmp_path / f"{draw}" / name, run)
        _, found = asked("target", "--target", f"{of}<={goal}", tmp_path / f"{draw}")["groups"]
        false += found["word"] in ("faster", "slower", "different")
    assert false <= 1


def test_a_target_that_some_repeats_missed_has_no_factors(tmp_path: Path, asked: Asked) -> None:
    """Two of five of the second arm stay above it."""
    for name, _, own in turns(5):
        curve = falling(100) if name not in ("b1", "b3") else np.maximum(falling(100), 0.5)
        write_run(tmp_path / name, Run(seconds=seconds(100), loss=curve, **own))
    _, found = asked("target", "--target", "loss<=.4", tmp_path)["groups"]
    assert "speedup" not in found
    assert found["why"] == "5 of 5 of a0 and 3 of 5 of b0 reached the target"


def test_repeats_of_one_seed_claim_nothing_of_a_target(tmp_path: Path, asked: Asked) -> None:
    for name, arm, own in turns(3):
        curve = falling(200) * (0.9 if arm == "b" else 1)
        loss = curve * np.exp(0.003 * RNG.standard_normal(200))
        write_run(tmp_path / name, Run(seconds=seconds(200), loss=loss, **own | {"seed": 1}))
    _, found = asked("target", "--target", "loss<=.36", tmp_path)["groups"]
    assert found["word"] == "different"
    assert "of one seed" in found["verdict"]


def test_a_seed_that_became_nan_after_the_target_leaves_no_claim(
    tmp_path: Path, asked: Asked
) -> None:
    for name, arm, own in turns(4):
        loss = falling(200) * np.exp(0.003 * RNG.standard_normal(200))
        loss[100 if name == "b1" else 200 :] = np.nan
        slower = 0.7 if arm == "b" else 1.0
        write_run(tmp_path / name, Run(seconds=seconds(200, slower=slower), loss=loss, **own))
    _, found = asked("target", "--target", "loss<=.36", tmp_path)["groups"]
    assert found["why"] == "the loss of b1 is not finite from step 1010 on"


def test_a_time_to_a_target_leaves_out_the_turns_of_others(tmp_path: Path, asked: Asked) -> None:
    """One arm is 1.3x as fast, and each run waits as long as the other trains."""
    for name, slower in (("a", 1.3), ("b", 1.0)):
        starts = tuple(START + 1000.0 * n + (500.0 if name == "b" else 0.0) for n in range(8))
        own = Run(
            seconds=seconds(200, slower=slower),
            loss=falling(200),
            attempts=tuple(range(0, 200, 25)),
            starts=starts,
            turns=tuple(f"round {n}" for n in range(8)),
            overrides=WORKERS if name == "b" else (),
        )
        write_run(tmp_path / name, own)
    _, found = asked("target", "--target", "loss<=.32", tmp_path)["groups"]
    assert 1.15 < found["speedup"] < 1.3
