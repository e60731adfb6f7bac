"""Truth that a hostile reviewer planted: a verdict is right, or it is withheld in a sentence."""

import json
import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.stats.intervals import Floats
from benchmarks.analysis_coverage.folders import START, Run, write_run
from configs.yaml12 import dump_yaml
from tests.analysis.read.test_program import CONFIG

Rows = list[dict[str, Any]]
WORKERS = ("data.workers=3",)
RNG = np.random.default_rng(1)


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Gives what a command prints as JSON."""

    def ask(*argv: str | Path) -> Any:
        assert main([*map(str, argv), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture
def verdicts(asked: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Gives the verdicts of `compare` on the second arm by quantity."""

    def compare(*folders: Path) -> dict[str, Any]:
        rows: Rows = asked("compare", *folders)["comparisons"]
        return {row["quantity"]: row for row in rows}

    return compare


def seconds(number: int = 120, *, slower: float = 1.0) -> Floats:
    return np.asarray(slower * np.exp(0.01 * RNG.standard_normal(number)))


def falling(number: int = 120) -> Floats:
    step = 10.0 * np.arange(1, number + 1)
    return np.asarray(0.2 * (1 + 4 / np.sqrt(1 + step / 20)))


def rewrite_manifest(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the first attempt in the manifest of a run."""
    manifest = json.loads((run / "manifest.json").read_text())
    change(manifest["attempts"][0])
    (run / "manifest.json").write_text(json.dumps(manifest))


def end_as(run: Path, event: str, *, steps: int) -> None:
    """Make a run one of so many planned steps that ended otherwise than done."""
    *lines, last = (run / "metrics.jsonl").read_text().splitlines()
    lines.append(json.dumps(json.loads(last) | {"event": event}))
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    text = (run / "config.yaml").read_text()
    planned = text.replace(f"steps: {json.loads(last)['step']}", f"steps: {steps}")
    (run / "config.yaml").write_text(planned)


def test_runs_of_an_arm_that_mostly_came_first_support_no_claim(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]]
) -> None:
    """The node becomes slower from run to run, and one straggler does not hide that."""
    for place, arm in enumerate("aaaabaabbabbbb"):
        run = Run(
            seconds=seconds(slower=1.005**place),
            seed=place,
            overrides=WORKERS if arm == "b" else (),
            starts=(START + 1000.0 * place,),
        )
        write_run(tmp_path / f"{arm}{place:02d}", run)
    found = verdicts(tmp_path)["speed"]
    assert found["low"] < 1 < found["high"]
    assert "most runs of one before those of the other, for which the" in found["verdict"]
    assert "not the effect of any one of them" in found["differs"]


def write_program(folder: Path, *, printed: str, lr: float, seed: int, start: float) -> None:
    """Write the run of a program that prints a rate."""
    write_run(folder, Run(seconds=np.ones(3), starts=(start,)))
    (folder / "config.yaml").write_text(dump_yaml(CONFIG | {"params": {"lr": lr}, "seed": seed}))
    lines = [f"step {n} loss {0.2 + 1 / n:.4f} {printed} it/s\n" for n in range(1, 200)]
    (folder / "attempts" / "001" / "output.log").write_text("".join(lines))
    event = {"attempt": 1, "time": start, "event": "started", "step": 0}
    (folder / "metrics.jsonl").write_text(json.dumps(event) + "\n")


def test_what_printed_digits_leave_open_is_in_the_interval_of_repeats(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]]
) -> None:
    """1.349 and 1.351 steps a second, printed with one digit."""
    for number in range(3):
        for arm, printed, lr in (("a", "1.3", 0.1), ("b", "1.4", 0.2)):
            start = START + 1000.0 * (2 * number + (arm == "b"))
            write_program(
                tmp_path / f"{arm}{number}", printed=printed, lr=lr, seed=number, start=start
            )
    found = verdicts(tmp_path)["speed"]
    assert found["low"] < 1.0015 < found["high"]
    assert found["word"] == "undetermined"


def test_repeats_of_a_program_that_prints_the_same_are_told_by_when_they_ran(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    for number in range(3):
        start = START + 1000.0 * number
        write_program(tmp_path / str(number), printed="1.3", lr=0.1, seed=0, start=start)
    assert [row["runs"] for row in asked("cells", tmp_path)["cells"]] == [3]


@pytest.mark.parametrize("event", ["stopped", "saved"])
def test_a_repeat_that_was_stopped_or_still_runs_does_not_cut_the_losses_of_all(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]], event: str
) -> None:
    """The other learning rate is better at first and worse in the end."""
    for number in range(4):
        for arm in "ab":
            loss = falling(200) * np.exp(0.003 * RNG.standard_normal())
            is_short = (arm, number) == ("b", 3)
            length = 25 if is_short else 200
            run = write_run(
                tmp_path / f"{arm}{number}",
                Run(
                    seconds=seconds(length),
                    loss=(loss * np.linspace(0.8, 1.2, 200) if arm == "b" else loss)[:length],
                    seed=number,
                    overrides=("optimizer.lr=0.0002",) if arm == "b" else (),
                    starts=(START + 1000.0 * (2 * number + (arm == "b")),),
                ),
            )
            if is_short:
                end_as(run, event, steps=2000)
    found = verdicts(tmp_path)["loss"]
    assert found["word"] == "worse"
    assert "without b3, which has 250 of 2000 steps" in found["verdict"]


def test_gpu_hours_count_the_ranks_of_each_attempt(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    """Eight ranks are eight times as fast, so that a step costs the same GPU-hours."""
    for name, ranks in (("a", 1), ("b", 8)):
        own = seconds(200)
        own[:100] /= ranks
        loss = falling(200) * np.exp(0.01 * RNG.standard_normal(200))
        planned = Run(seconds=own, loss=loss, attempts=(0, 100), starts=(START + 1000.0 * ranks,))
        run = write_run(tmp_path / name, planned)
        rewrite_manifest(run, partial(dict.update, ranks=ranks))
    [found] = asked("loss", "--by", "gpu_hours", tmp_path / "a", tmp_path / "b")["pairs"]
    assert found["ratio"] == pytest.approx(1.0, abs=0.02)
    assert [row.get("gpus") for row in asked("cost", tmp_path)] == [1, None]


def test_a_claim_of_a_speed_that_is_not_known_is_undecidable(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    own = np.random.default_rng(0)  # the warm-up that is cut depends on the draw
    write_run(tmp_path / "a", Run(seconds=np.exp(0.9 * own.standard_normal(30))))
    claims = [{"quantity": "steps_per_s", "runs": ["a"], "value": value} for value in (3, 6)]
    (tmp_path / "claims.yaml").write_text(dump_yaml({"claims": claims}))
    found = asked("audit", tmp_path / "claims.yaml")["claims"]
    assert [row["verdict"] for row in found] == ["undecidable"] * 2
    assert "further than a quarter" in found[0]["why"]


def test_a_target_by_name_is_the_best_value_that_every_run_reached(
    tmp_path: Path, asked: Callable[..., Any]
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


def test_a_run_that_ran_at_once_with_a_third_is_not_compared(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    """The third is named to the command, or only a cell of the same study."""
    cells = {"a": (1.0, 0, 0.0), "b": (1.4, 3, 5000.0), "c": (1.4, 5, 5003.0)}
    (tmp_path / "study.yaml").write_text("kind: study\n")
    head = "index\torder\tcell\trepeat\tshape\tdigest\tdata.workers\n"
    rows = [f"{n}\t{n}\t{name}\t1\tx\td\t{cells[name][1]}\n" for n, name in enumerate(cells)]
    (tmp_path / "cells.tsv").write_text(head + "".join(rows))
    for name, (slower, workers, later) in cells.items():
        overrides = (f"data.workers={workers}",)
        run = Run(seconds=seconds(slower=slower), overrides=overrides, starts=(START + later,))
        write_run(tmp_path / "cells" / name, run)
    for names in ("abc", "ab"):
        found = asked("speed", *(tmp_path / "cells" / name for name in names))[1]
        assert (found["word"], found["why"]) == ("not compared", "b and c ran at once on n1")
        over_time = ("loss", "--by", "train_s", *(tmp_path / "cells" / name for name in names))
        assert asked(*over_time)["pairs"][0]["why"] == "b and c ran at once on n1"


def test_rates_are_compared_over_the_steps_that_all_runs_have(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]]
) -> None:
    """Both arms slow down at step 1000, and one was stopped at step 900."""
    for number in range(3):
        for arm, length in (("a", 200), ("b", 90)):
            own = seconds(200)
            own[100:] *= 1.3
            run = Run(
                seconds=own[:length],
                seed=number,
                overrides=WORKERS if arm == "b" else (),
                starts=(START + 3000.0 * (2 * number + (arm == "b")),),
            )
            write_run(tmp_path / f"{arm}{number}", run)
    found = verdicts(tmp_path)["speed"]
    assert (found["word"], found["low"] < 1 < found["high"]) == ("same", True)
    assert "up to step 900, which all have" in found["verdict"]


def test_evaluations_that_are_far_apart_do_not_make_a_run_slower_to_a_target(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    """One curve, evaluated each 20 or each 400 steps."""
    for number in range(4):
        for arm, gap in (("a", 2), ("b", 40)):
            curve = falling(200) * np.exp(0.003 * RNG.standard_normal())
            run = Run(
                seconds=seconds(200),
                seed=number,
                overrides=WORKERS if arm == "b" else (),
                evaluations={
                    n: {"validation_loss": float(curve[n])} for n in range(gap - 1, 200, gap)
                },
                starts=(START + 1000.0 * (2 * number + (arm == "b")),),
            )
            write_run(tmp_path / f"{arm}{number}", run)
    for goal in (0.36, 0.33):
        _, found = asked("target", "--target", f"validation_loss<={goal}", tmp_path)["groups"]
        assert found["low"] < 1 < found["high"]
        assert "times as fast to the target" in found["verdict"]


def test_evaluations_that_are_far_apart_move_no_critical_batch_out_of_its_interval(
    tmp_path: Path, asked: Callable[..., Any]
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
                evaluations={
                    n: {"validation_loss": float(loss[n])} for n in range(39, len(loss), 40)
                },
                starts=(START + 10_000.0 * seed + batch,),
            )
            write_run(tmp_path / f"{batch}-{seed}", run)
    found = asked("target", "--critical-batch", tmp_path, "--target", "validation_loss<=.5")
    assert found["b_crit_low"] < 256 < found["b_crit_high"]


@pytest.mark.parametrize("gaps", [(15, 25), (13, 17)])
def test_evaluations_at_other_steps_are_compared_at_one(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]], gaps: tuple[int, int]
) -> None:
    """One curve; the second arm's last evaluation is earlier, or none is at a common step."""
    for number in range(4):
        for arm, gap in zip("ab", gaps, strict=True):
            curve = falling(100) * np.exp(0.003 * RNG.standard_normal())
            run = Run(
                seconds=seconds(100),
                seed=number,
                overrides=WORKERS if arm == "b" else (),
                evaluations={
                    n: {"validation_loss": float(curve[n])} for n in range(gap - 1, 100, gap)
                },
                starts=(START + 1000.0 * (2 * number + (arm == "b")),),
            )
            write_run(tmp_path / f"{arm}{number}", run)
    found = verdicts(tmp_path)["validation loss"]
    assert found["word"] in ("same", "undetermined")
    assert found["low"] < 1 < found["high"]


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


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_nodes_clock_that_is_set_makes_no_time_of_day_a_measurement(
    tmp_path: Path, asked: Callable[..., Any], capsys: pytest.CaptureFixture[str], jump: float
) -> None:
    """The seconds of training are right, and the time of day leaves them in the middle."""
    for name, later in (("a", 0.0), ("b", 9000.0)):
        run = Run(seconds=seconds(), loss=falling(), starts=(START + later,))
        write_run(tmp_path / name, run)
    lines = (tmp_path / "b/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        record["time"] += jump if record.get("step", 0) > 600 else 0.0
    (tmp_path / "b/metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    said = f"the time of day jumps by {jump:,.0f} s at step 610"
    assert ["gpu_hours" in row for row in asked("cost", tmp_path)] == [True, False]
    assert main(["cost", str(tmp_path)]) == 0
    assert f"b: GPU-hours unknown: {said}" in capsys.readouterr().err
    runs = (tmp_path / "a", tmp_path / "b")
    [found] = asked("loss", "--by", "wall", *runs)["pairs"]
    assert (found["word"], said in found["why"]) == ("not compared", True)
    assert said in asked("speed", "--clock", "wall", *runs)[1]["why"]
    assert asked("speed", *runs)[1]["ratio"] == pytest.approx(1, abs=0.01)


def test_gpu_hours_of_two_models_stand_beside_their_names(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    run = write_run(tmp_path / "a", Run(seconds=np.ones(200), attempts=(0, 180)))
    rewrite_manifest(run, lambda first: first["placement"][0].update(gpu="NVIDIA H100"))
    [row] = asked("cost", run)
    # 180 and 20 records of 2.5 s, and a set-up of 15 s each.
    assert row["gpu"] == f"NVIDIA H100 ({465 / 3600:.3f} h) + NVIDIA A40 ({65 / 3600:.4f} h)"
    assert row["gpu_hours"] == pytest.approx((465 + 65) / 3600, rel=0.01)


def test_a_claim_is_undecidable_if_the_verdict_on_its_runs_is(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    """Runs of one recipe scatter; no ratio of two of them is an effect."""
    for number, slower in enumerate((1.0, 1.03)):
        run = Run(seconds=seconds(slower=slower), seed=number, starts=(START + 1000.0 * number,))
        write_run(tmp_path / str(number), run)
    claim = {"quantity": "speedup", "runs": ["0", "1"], "value": 0.97}
    (tmp_path / "claims.yaml").write_text(dump_yaml({"claims": [claim]}))
    [found] = asked("audit", tmp_path / "claims.yaml")["claims"]
    assert found["verdict"] == "undecidable"
    assert "runs of one recipe scatter, too" in found["why"]


def rewrite_placement(run: Path, *places: dict[str, str]) -> None:
    """Give a run a rank at each of these places."""

    def change(first: dict[str, Any]) -> None:
        [place] = first["placement"]
        first["placement"] = [place | other for other in places]
        first["ranks"] = len(places)

    rewrite_manifest(run, change)


def write_ranks(folder: Path, *, gpu: str = "NVIDIA A40", **ranks: tuple[str, ...]) -> None:
    """Write three runs for each number of ranks, on these nodes; `gpu` is what the most have."""
    most = max(map(len, ranks.values()))
    for seed in range(3):
        for place, (name, nodes) in enumerate(ranks.items()):
            start = START + 1000.0 * (seed * len(ranks) + place)
            own = seconds(slower=1 / len(nodes))
            run = write_run(folder / f"{name}_{seed}", Run(seconds=own, seed=seed, starts=(start,)))
            model = gpu if len(nodes) == most else "NVIDIA A40"
            rewrite_placement(run, *({"node": node, "gpu": model} for node in nodes))


def test_scaling_names_what_differs_beside_the_ranks(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    """Four ranks on another GPU: 4x as fast is not the effect of the ranks."""
    write_ranks(tmp_path, gpu="NVIDIA H100", one=("n1",), four=("n1",) * 4)
    found = asked("cells", "--scaling", tmp_path)[1]
    assert found["word"] == "not compared"
    assert "more than the ranks differs (gpu: NVIDIA A40 -> NVIDIA H100)" in found["verdict"]
    assert "efficiency" not in found


def test_scaling_goes_beyond_one_node(tmp_path: Path, asked: Callable[..., Any]) -> None:
    write_ranks(tmp_path, one=("n1",), two=("n1",) * 2, four=("n1", "n1", "n2", "n2"))
    found = asked("cells", "--scaling", tmp_path)
    assert [row["ranks"] for row in found] == [1, 2, 4]
    assert found[2]["efficiency_low"] < 1 < found[2]["efficiency_high"]
    assert "nodes differ" in found[2]["verdict"]


def test_a_log_of_two_attempts_does_not_tell_how_long_they_waited(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    """It died at step 1500 and went on from step 1000, ten minutes later."""
    steps = [(step, 0.0) for step in range(5, 1505, 5)]
    steps += [(step, 1250.0 + 600.0) for step in range(1005, 2005, 5)]
    (tmp_path / "a.jsonl").write_text(
        "".join(
            json.dumps({"step": step, "loss": 1 / step, "time": START + later + step / 2}) + "\n"
            for step, later in steps
        )
    )
    [row] = asked("cost", tmp_path / "a.jsonl", "--set", "gpus=8")
    assert "gpu_hours" not in row
    [reached] = asked("target", "--target", "loss<=0.0006", tmp_path / "a.jsonl")["groups"]
    assert reached["minutes"] > 10
    assert "availability_gain" not in reached


def test_local_times_at_the_end_of_summer_time_tell_no_time(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    (tmp_path / "a.jsonl").write_text(
        "".join(
            json.dumps({"step": n, "loss": 1 / n, "time": START + n - (3600.0 if n > 500 else 0.0)})
            + "\n"
            for n in range(1, 1000)
        )
    )
    [row] = asked("cost", tmp_path / "a.jsonl")
    assert "minutes" not in row


def test_attempts_too_short_to_show_their_warm_up_make_no_run_slower(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]]
) -> None:
    """The first arm is preempted each 90 steps, and each attempt begins at half the speed."""
    for number in range(3):
        for arm, begun in (("a", tuple(range(0, 108, 9))), ("b", (0,)), ("c", (0, 99))):
            own = seconds(108)
            for row in begun:
                own[row : row + 3] *= 2
            run = Run(
                seconds=own,
                seed=number,
                overrides=WORKERS if arm != "a" else (),
                attempts=begun,
                starts=(START + 5000.0 * (2 * number + (arm != "a")) + (arm == "c") * 1e5,),
            )
            write_run(tmp_path / arm / f"{arm}{number}", run)
    found = verdicts(tmp_path / "a", tmp_path / "b")["speed"]
    assert found["word"] == "undetermined"
    assert "all attempts of a0 are too short to tell their warm-up" in found["verdict"]


def test_a_doubt_about_the_rates_of_repeats_leaves_them_without_a_verdict(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]]
) -> None:
    """The times of each program are without a unit."""
    for number in range(3):
        for arm, lr in (("a", 0.1), ("b", 0.2)):
            folder = tmp_path / f"{arm}{number}"
            start = START + 1000.0 * (2 * number + (arm == "b"))
            write_program(folder, printed="1.3", lr=lr, seed=number, start=start)
            per_step = {"a": 0.5, "b": 500.0}[arm] * (1 + 0.001 * RNG.standard_normal(200))
            lines = [f"step {n} loss 0.5 step_time {one:.4f}\n" for n, one in enumerate(per_step)]
            (folder / "attempts" / "001" / "output.log").write_text("".join(lines))
    assert verdicts(tmp_path)["speed"]["word"] in ("undetermined", "not compared")


def test_a_time_to_a_target_that_was_spent_in_a_queue_says_so(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    for number in range(4):
        for arm, waited in (("a", 0.0), ("b", 3600.0)):
            start = START + 20_000.0 * (2 * number + (arm == "b"))
            run = Run(
                seconds=seconds(200),
                loss=falling(200) * np.exp(0.003 * RNG.standard_normal()),
                seed=number,
                overrides=WORKERS if arm == "b" else (),
                attempts=(0, 20),
                starts=(start, start + 80.0 + waited),
            )
            write_run(tmp_path / f"{arm}{number}", run)
    _, found = asked("target", "--target", "loss<=.36", tmp_path)["groups"]
    assert "as fast to the target as a0" in found["verdict"]
    assert "of which time without training makes 0.0" in found["verdict"]


def test_two_long_pauses_of_every_run_of_an_arm_count(
    tmp_path: Path, verdicts: Callable[..., dict[str, Any]]
) -> None:
    """At two ends of epochs, for twenty records each, which the log does not declare."""
    for number in range(3):
        for arm in "ab":
            own = seconds(300)
            if arm == "b":
                own[RNG.choice(np.arange(50, 300), 2, replace=False)] += 20
            run = Run(
                seconds=own,
                seed=number,
                overrides=WORKERS if arm == "b" else (),
                starts=(START + 3000.0 * (2 * number + (arm == "b")),),
            )
            write_run(tmp_path / f"{arm}{number}", run)
    found = verdicts(tmp_path)["speed"]
    assert found["ratio"] == pytest.approx(1 / (1 + 40 / 300), rel=0.01)
    assert found["word"] == "slower"


def test_a_target_that_was_neared_on_another_machine_supports_no_claim(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    """The first 60 records of the second arm ran on a GPU three times as fast."""
    for number in range(4):
        for arm in "ab":
            own = seconds(200)
            own[:60] /= 3 if arm == "b" else 1
            run = Run(
                seconds=own,
                loss=falling(200) * np.exp(0.003 * RNG.standard_normal()),
                seed=number,
                overrides=WORKERS if arm == "b" else (),
                attempts=(0, 60),
                starts=(START + 3000.0 * (2 * number + (arm == "b")),),
            )
            folder = write_run(tmp_path / f"{arm}{number}", run)
            if arm == "b":
                manifest = json.loads((folder / "manifest.json").read_text())
                manifest["attempts"][0]["placement"][0]["gpu"] = "NVIDIA H100"
                (folder / "manifest.json").write_text(json.dumps(manifest))
    _, found = asked("target", "--target", "loss<=.36", tmp_path)["groups"]
    assert found["word"] == "different"
    assert "attempts of b0 differ in gpu" in found["verdict"]
    paths = (tmp_path / "a0", tmp_path / "b0")
    [loss] = asked("loss", "--by", "train_s", *paths)["pairs"]
    assert "attempts of b0 differ in gpu" in loss["verdict"]


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


def test_a_table_of_many_verdicts_says_how_many_sentences_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        start = START + 1000.0 * number
        write_run(tmp_path / f"{number:02d}", Run(seconds=seconds(), seed=number, starts=(start,)))
    main(["speed", str(tmp_path)])
    assert "3 more sentences (--all shows them)" in capsys.readouterr().out
    main(["speed", str(tmp_path), "--all"])
    assert "more sentences" not in capsys.readouterr().out


def test_more_looks_at_a_noisy_evaluation_make_no_run_faster_to_a_target(
    tmp_path: Path, asked: Callable[..., Any]
) -> None:
    """One curve with a noise of 3 % on each evaluation, each 20 or each 200 steps."""
    false = 0
    for draw in range(8):
        for number in range(5):
            for arm, gap in (("a", 2), ("b", 20)):
                curve = falling(200) * np.exp(0.03 * RNG.standard_normal(200))
                start = START + 1500.0 * (2 * number + (arm == "b"))
                looks = {n: {"validation_loss": float(curve[n])} for n in range(gap - 1, 200, gap)}
                run = Run(
                    seconds=seconds(200),
                    seed=number,
                    overrides=WORKERS if arm == "b" else (),
                    evaluations=looks,
                    starts=(start,),
                )
                write_run(tmp_path / f"{draw}" / f"{arm}{number}", run)
        found = asked("target", "--target", "validation_loss<=.36", tmp_path / f"{draw}")
        false += found["groups"][1]["word"] in ("faster", "slower", "different")
    assert false <= 1
