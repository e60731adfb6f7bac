"""A planted speed is found, or its verdict is withheld in a sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.measure.rate import measure_rate
from benchmarks.analysis_coverage.folders import START, Run, write_run, write_study
from tests.analysis.conftest import Asked
from tests.analysis.foreign_logs import log_of
from tests.analysis.planted.runs import (
    RNG,
    WORKERS,
    Verdicts,
    end_as,
    seconds,
    turns,
    write_program,
)
from tests.analysis.synthetic_runs import rewrite_manifest


def test_runs_of_an_arm_that_mostly_came_first_support_no_claim(
    tmp_path: Path, verdicts: Verdicts
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
    assert "each ran at times of its own, for which the interval allows" in found["verdict"]
    assert "not the effect of any one of them" in found["differs"]


@pytest.mark.parametrize(("apart", "word"), [(43_200.0, "undetermined"), (30_000.0, "slower")])
def test_arms_of_which_one_ran_by_night_are_not_told_apart_from_the_day(
    tmp_path: Path, verdicts: Verdicts, apart: float, word: str
) -> None:
    """Every other run is 3 % slower, and begins twelve hours later, or at any hour."""
    for name, arm, own in turns(4, apart=apart):
        slower = 1.03 if arm == "b" else 1.0
        write_run(tmp_path / name, Run(seconds=seconds(slower=slower), **own))
    found = verdicts(tmp_path)["speed"]
    assert found["word"] == word
    assert ("times of its own" in found["verdict"]) == (word == "undetermined")


def test_what_printed_digits_leave_open_is_in_the_interval_of_repeats(
    tmp_path: Path, verdicts: Verdicts
) -> None:
    """1.349 and 1.351 steps a second, printed with one digit."""
    printed, rates = {"a": "1.3", "b": "1.4"}, {"a": 0.1, "b": 0.2}
    for name, arm, own in turns(3):
        start, seed = own["starts"][0], own["seed"]
        write_program(tmp_path / name, printed=printed[arm], lr=rates[arm], seed=seed, start=start)
    found = verdicts(tmp_path)["speed"]
    assert found["low"] < 1.0015 < found["high"]
    assert found["word"] == "undetermined"


def test_repeats_of_a_program_that_prints_the_same_are_told_by_when_they_ran(
    tmp_path: Path, asked: Asked
) -> None:
    for number in range(3):
        start = START + 1000.0 * number
        write_program(tmp_path / str(number), printed="1.3", lr=0.1, seed=0, start=start)
    assert [row["runs"] for row in asked("cells", tmp_path)["cells"]] == [3]


def test_a_run_that_ran_at_once_with_a_third_is_not_compared(tmp_path: Path, asked: Asked) -> None:
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
    tmp_path: Path, verdicts: Verdicts
) -> None:
    """Both arms slow down at step 1000, and one was stopped at step 900."""
    for name, arm, own in turns(3, apart=3000.0):
        each = seconds(200)
        each[100:] *= 1.3
        write_run(tmp_path / name, Run(seconds=each[: 200 if arm == "a" else 90], **own))
    found = verdicts(tmp_path)["speed"]
    assert (found["word"], found["low"] < 1 < found["high"]) == ("same", True)
    assert "up to step 900, which all have" in found["verdict"]


def test_attempts_too_short_to_show_their_warm_up_make_no_run_slower(
    tmp_path: Path, verdicts: Verdicts
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
    tmp_path: Path, verdicts: Verdicts
) -> None:
    """The times of each program are without a unit."""
    for name, arm, own in turns(3):
        folder, lr = tmp_path / name, {"a": 0.1, "b": 0.2}[arm]
        write_program(folder, printed="1.3", lr=lr, seed=own["seed"], start=own["starts"][0])
        per_step = {"a": 0.5, "b": 500.0}[arm] * (1 + 0.001 * RNG.standard_normal(200))
        lines = [f"step {n} loss 0.5 step_time {one:.4f}\n" for n, one in enumerate(per_step)]
        (folder / "attempts" / "001" / "output.log").write_text("".join(lines))
    assert verdicts(tmp_path)["speed"]["word"] in ("undetermined", "not compared")


def test_two_long_pauses_of_every_run_of_an_arm_count(tmp_path: Path, verdicts: Verdicts) -> None:
    """At two ends of epochs, for twenty records each, which the log does not declare."""
    for name, arm, own in turns(3, apart=3000.0):
        each = seconds(300)
        if arm == "b":
            each[RNG.choice(np.arange(50, 300), 2, replace=False)] += 20
        write_run(tmp_path / name, Run(seconds=each, **own))
    found = verdicts(tmp_path)["speed"]
    assert found["ratio"] == pytest.approx(1 / (1 + 40 / 300), rel=0.01)
    assert found["word"] == "slower"


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


def test_scaling_names_what_differs_beside_the_ranks(tmp_path: Path, asked: Asked) -> None:
    """Four ranks on another GPU: 4x as fast is not the effect of the ranks."""
    write_ranks(tmp_path, gpu="NVIDIA H100", one=("n1",), four=("n1",) * 4)
    found = asked("cells", "--scaling", tmp_path)[1]
    assert found["word"] == "not compared"
    assert "more than the ranks differs (gpu: NVIDIA A40 -> NVIDIA H100)" in found["verdict"]
    assert "efficiency" not in found


def test_scaling_goes_beyond_one_node(tmp_path: Path, asked: Asked) -> None:
    write_ranks(tmp_path, one=("n1",), two=("n1",) * 2, four=("n1", "n1", "n2", "n2"))
    found = asked("cells", "--scaling", tmp_path)
    assert [row["ranks"] for row in found] == [1, 2, 4]
    assert found[2]["efficiency_low"] < 1 < found[2]["efficiency_high"]
    assert "nodes differ" in found[2]["verdict"]


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


def test_the_speed_of_a_repeat_that_ended_early_counts(tmp_path: Path, verdicts: Verdicts) -> None:
    for name, arm, own in turns(3):
        number = 54 if name == "b2" else 120
        write_run(
            tmp_path / name, Run(seconds=seconds(number, slower=1.1 if arm == "b" else 1), **own)
        )
    end_as(tmp_path / "b2", "stopped", steps=1200)
    found = verdicts(tmp_path)
    assert found["speed"]["word"] == "slower"
    assert found["speed"]["low"] < 1 / 1.1 < found["speed"]["high"]


@pytest.mark.parametrize(
    ("nodes", "told", "cause"),
    [
        (("aaa", "aaaaaaa"), "3 v 7 seeds", "this differs: data.workers"),
        (("abcabc", "abcabc"), "3 nodes that both used", "this differs: data.workers"),
        (("ababab", "acacac"), "3 of 6 and 3 of 6 runs count", "this differs: data.workers"),
        (("abcde", "abfgh"), "5 nodes a side", "nodes differ, too"),
    ],
)
def test_a_verdict_says_which_replicates_it_counts(
    tmp_path: Path, verdicts: Verdicts, nodes: tuple[str, str], told: str, cause: str
) -> None:
    for name, arm, own in turns(7):
        place = int(name[1:])
        if place < len(nodes[arm == "b"]):
            node = nodes[arm == "b"][place]
            write_run(tmp_path / name, Run(seconds=seconds(40), node=node, **own))
    found = verdicts(tmp_path)["speed"]
    assert told in found["verdict"]
    assert cause in found["differs"]
    assert found["low"] < 1 < found["high"]


@pytest.mark.parametrize(("scatter", "effect", "found"), [(0.05, 1.0, 0), (0.01, 1.2, 11)])
def test_single_runs_of_many_cells_may_differ_as_they_all_scatter(
    tmp_path: Path, asked: Asked, scatter: float, effect: float, found: int
) -> None:
    """Twelve cells scatter by 5 % and are equal, or by 1 % and each is 1.2x the one before."""
    for cell in range(12):
        slower = effect**cell * np.exp(scatter * RNG.standard_normal())
        run = Run(
            seconds=seconds(slower=slower),
            overrides=(f"data.workers={cell}",),
            starts=(START + 20_000.0 * cell,),
        )
        write_run(tmp_path / f"{cell:02d}", run)
    words = [row["word"] for row in asked("cells", tmp_path)["cells"][1:]]
    assert words.count("different") == found


def test_the_efficiency_of_single_runs_allows_for_the_scatter_between_runs(
    tmp_path: Path, asked: Asked
) -> None:
    write_ranks(tmp_path, one=("n1",), four=("n1",) * 4)
    runs = (tmp_path / "one_0", tmp_path / "four_0")
    found = asked("cells", "--scaling", *runs)[1]
    assert found["efficiency_low"] < 0.95 < 1.05 < found["efficiency_high"]
    assert "one run each, for which the interval allows 2% each" in found["verdict"]


def test_an_effect_that_depends_on_another_factor_is_not_one_of_none(
    tmp_path: Path, asked: Asked
) -> None:
    """More workers are 1.3x as fast at two learning rates, and .77x at the other two."""
    cells = [(workers, rate, repeat) for workers in (0, 3) for rate in range(4) for repeat in "ab"]
    for place, number in enumerate([9, 0, 11, 6, 3, 14, 12, 1, 4, 10, 2, 13, 15, 8, 7, 5]):
        workers, rate, repeat = cells[number]
        run = Run(
            seconds=seconds(40, slower=(1.3, 0.77)[rate % 2] if workers else 1.0),
            overrides=(f"data.workers={workers}", f"optimizer.lr={rate + 1}.0e-4"),
            seed=ord(repeat),
            starts=(START + 1000.0 * place,),
        )
        write_run(tmp_path / f"{workers}{rate}{repeat}", run)
    found, *_ = asked("cells", "--ablation", tmp_path)
    assert found["word"] == "undetermined"
    assert found["why"] == "the effect depends on the other factors, from 0.77x to 1.30x"


def test_a_jump_to_where_a_training_resumes_is_no_step() -> None:
    step = np.concatenate([[0.0], np.arange(501.0, 1001.0)])
    elapsed = np.concatenate([[0.0], 40 + 0.5 * np.arange(1, 501)])
    log = log_of({"elapsed_s": elapsed}, steps=step.astype(int))
    assert measure_rate(log, clock="wall").rate.value == pytest.approx(2, rel=0.01)


def read_gpu(run: Path, **reading: float) -> None:
    """Write what the one GPU of a run did, each ten seconds."""
    rows = [{"time": START + 10.0 * n, "span_s": 10.0, "gpu": 0} | reading for n in range(-99, 999)]
    (run / "attempts/001/gpu").mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in [{"gpus": [{}]}, *rows])
    (run / "attempts/001/gpu/n1.jsonl").write_text(lines)


@pytest.mark.parametrize(
    ("reading", "word", "why"),
    [
        ({"others": 1}, "not compared", "processes of others used GPU 0 of n1 beside b0"),
        ({"throttled_heat": 0.8}, "different", "a GPU of b0 was throttled by heat"),
    ],
)
def test_what_else_slowed_the_gpus_of_an_arm_down_is_not_its_effect(
    tmp_path: Path, verdicts: Verdicts, reading: dict[str, float], word: str, why: str
) -> None:
    for name, arm, own in turns(3):
        slower = 1.3 if arm == "b" else 1.0
        run = write_run(tmp_path / name, Run(seconds=seconds(slower=slower), **own))
        if arm == "b":
            read_gpu(run, **reading)
    found = verdicts(tmp_path)["speed"]
    assert found["word"] == word
    assert why in found["verdict"]


def test_cells_of_two_studies_ran_in_no_random_order(tmp_path: Path, asked: Asked) -> None:
    """Each level has its study, and the machine was slower on the second day."""
    for day, mlp in enumerate(("gelu", "swiglu")):
        cells = {f"w{workers}-{number}": workers for number in range(3) for workers in (1, 2, 3)}
        folder = write_study(
            tmp_path / f"study-{day}",
            {
                name: Run(
                    seconds=seconds(slower=1 + 0.04 * day),
                    overrides=(f"model.mlp={mlp}", f"data.workers={workers}"),
                )
                for name, workers in cells.items()
            },
            axes={"model.mlp": [mlp], "data.workers": [1, 2, 3]},
            levels={
                name: {"model.mlp": mlp, "data.workers": workers} for name, workers in cells.items()
            },
            repeat={name: int(name[-1]) + 1 for name in cells},
        )
        for run in (folder / "cells").iterdir():
            manifest = json.loads((run / "manifest.json").read_text())
            for of in ("began", "ended"):
                manifest["attempts"][0][of] += 86_400.0 * day
            (run / "manifest.json").write_text(json.dumps(manifest))
    found = {row["factor"]: row for row in asked("cells", "--ablation", tmp_path)}
    assert found["model.mlp"]["why"].startswith("cells of one level ran at times of their own")
