"""`plan`: when a run or a study would start and be done, and where."""

import json
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from configs.load import load
from configs.yaml12 import dump_yaml
from launch.plan import forecast, saves
from launch.plan.forecast import ForecastAnswer
from launch.slurm import client
from tests.launch.conftest import DIGITS
from tests.launch.study_sandbox import end, end_all, submitted

ASK = forecast.ask
# By type of GPU: seconds per step, and seconds until a job would start.
STEP_S = {"a40": 2.0, "a100": 1.0}
STARTS_IN_S = {"a40": 60, "a100": 7200}
# The least width that does not fit on an A40.
TOO_LARGE = 1024


@pytest.fixture(autouse=True)
def _cluster(command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes of two A40 and one of two A100, which is busy; a step of n GPUs takes 1/n."""
    command(
        "sinfo",
        r"""case $* in *%G*) printf 'x1|gpu:a40:2\nx2|gpu:a40:2\nz1|gpu:a100:2\n' ;;
        *) printf 'gpu*|2-00:00:00|1-8\n' ;; esac""",
    )
    now = time.time()
    at = {
        name: time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now + delay))
        for name, delay in STARTS_IN_S.items()
    }
    starts = "; ".join(f"[[ $text != *={name}:* ]] || s={start}" for name, start in at.items())
    command("sbatch", f"text=$(cat); {starts}; echo sbatch: Job 1 to start at $s using 1 >&2")
    command("squeue", "exit 0")
    command("scontrol", "echo 'MaxArraySize            = 1001'")

    def answer(config) -> ForecastAnswer:
        resources = config.resources
        return ForecastAnswer(gpus={
            gpu: _facts(gpu, resources.nodes * resources.gpus_per_node, fits=(
                gpu != "a40" or config.model.width < TOO_LARGE
            ))
            for gpu in ([resources.gpu] if resources.gpu else STEP_S)
        })  # fmt: skip

    monkeypatch.setattr(forecast, "ask", lambda asked: [answer(load(*one)) for one in asked])


def _facts(gpu: str, ranks: int, *, fits: bool) -> dict[str, Any]:
    if not fits:
        sizes = {"gib": {"total": 90, "peak": 90}, "capacity_gib": 45, "fix": "a smaller model"}
        return {"fits": False, "micro_batch": 1, "reason": "90 GiB", **sizes}
    step = STEP_S[gpu] / ranks
    ends = {"value": step, "low": step / 2, "high": 2 * step, "source": "guess by data sheet"}
    sizes = {"gib": {"total": 3, "peak": 3}, "capacity_gib": 45}
    return {"fits": True, "step_s": ends, "micro_batch": 8, "type": gpu, **sizes}


WORDS = ("train.steps=3600", "checkpoint.every=3600")


def test_the_types_of_gpu_are_sorted_by_their_finish_with_hours(launch) -> None:
    words = (*WORDS, "resources.gpus_per_node=2", "--json")
    code, out, err = launch("plan", DIGITS, *words)
    best, other = json.loads(out)["placements"]
    assert code == 0, err
    assert (best["shape"], other["shape"]) == ("a40:1x2", "a100:1x2")
    # 180 s + 2 saves of 5 s + 1.1 x 3600 steps of 1 s (0.5 to 2 s).
    assert best["finish"] - best["start"] == pytest.approx(180 + 10 + 3960)
    assert best["finish_low"] - best["start"] == pytest.approx(180 + 10 + 1980)
    assert best["finish_high"] - best["start"] == pytest.approx(180 + 10 + 7920)
    assert best["gpu_hours"] == pytest.approx(2 * 4150 / 3600)
    assert best["by"] == "guess by data sheet"


def test_one_line_names_the_best_and_the_command_that_queues_it(launch) -> None:
    code, out, err = launch("plan", DIGITS, *WORDS)
    assert (code, "\na40:1x1 " in out) == (0, True)
    assert "\nfirst done: a40:1x1, about " in err
    words = f"{' '.join(WORDS)} resources.gpu=a40"
    assert err.endswith(f"; queue it: ditbench submit {DIGITS} {words}\n")
    err = launch("plan", DIGITS, *WORDS, "--partition", "gpu", "--site", "local")[2]
    assert err.endswith(f" {words} --partition=gpu --site=local\n")


def test_a_type_that_the_config_names_is_the_only_one(launch) -> None:
    code, out, err = launch("plan", DIGITS, *WORDS, "resources.gpu=a100", "--json")
    assert (code, len(json.loads(out)["placements"])) == (0, 1)
    assert err.startswith("first done: a100:1x1, about ")


def test_a_type_on_which_a_run_does_not_fit_is_named_with_the_reason(launch) -> None:
    _, out, err = launch("plan", DIGITS, *WORDS, f"model.width={TOO_LARGE}", "--json")
    assert [row["shape"] for row in json.loads(out)["placements"]] == ["a100:1x1"]
    assert "no forecast of a40:1x1: 90 GiB\n" in err


def test_types_that_begin_with_a_digit_are_asked_about(launch, command, monkeypatch) -> None:
    rows = r"x1|gpu:2080ti:6(S:0-1)\nx2|gpu:1g.10gb:7,gpu:a40:1\nx3|gpu:2(S:0)\n"
    command("sinfo", f"printf '{rows}'")
    assert client.gpus() == {"": (1, 2), "1g.10gb": (1, 7), "2080ti": (1, 6), "a40": (1, 1)}
    for name in ("2080ti", "1g.10gb"):
        monkeypatch.setitem(STEP_S, name, 1.0)
    rows = json.loads(launch("plan", DIGITS, *WORDS, "--json")[1])["placements"]
    assert {row["shape"] for row in rows} >= {"2080ti:1x1", "1g.10gb:1x1"}


def test_no_finish_is_known_if_sbatch_refuses_every_type(launch, command) -> None:
    command("sbatch", "echo no >&2; exit 1")
    code, _, err = launch("plan", DIGITS, *WORDS)
    assert code == 1
    assert err.endswith("no finish time can be forecast here\n")


def write(folder: Path, *, axes: dict[str, Any], **keys: Any) -> Path:
    """Write a study of `WORDS`."""
    file = folder / "asked.yaml"
    steps = {"train.steps": 3600, "checkpoint.every": 3600}
    tree = {"kind": "study", "base": str(DIGITS), "set": steps, "axes": axes, **keys}
    file.write_text(dump_yaml(tree))
    return file


GPUS = {"resources.gpu": ["a40", "a100"], "train.global_batch": [32, 64]}


def test_of_a_study_the_first_start_is_said_and_how_it_is_queued(launch, tmp_path: Path) -> None:
    file = write(tmp_path, axes=GPUS, repeats=4, stop="decided")
    code, out, err = launch("plan", file, "--json")
    assert (code, json.loads(out)["placements"]) == (0, []), err
    begin = f"{datetime.fromtimestamp(time.time() + STARTS_IN_S['a40']):%d %b %H:}"
    assert re.search(rf"the first of 2 arrays starts about {begin}\d\d; ", err)
    assert err.endswith(f"stop: decided may need fewer runs; queue it: ditbench submit {file}\n")


def test_the_runs_of_logs_are_read_once_for_all_cells(launch, tmp_path: Path, monkeypatch) -> None:
    asked: list[Path] = []
    found = saves.find_runs
    monkeypatch.setattr(saves, "find_runs", lambda logs: asked.append(logs) or found(logs))
    (tmp_path / "logs").mkdir()
    assert launch("plan", write(tmp_path, axes=GPUS))[0] == 0
    assert asked == [tmp_path / "logs"]


def test_of_a_study_folder_the_missing_runs_are_planned(launch, tmp_path: Path, command) -> None:
    command(
        "sbatch",
        "cat >/dev/null; echo sbatch: Job 1 to start at 2036-01-01T10:00:00 using 1 >&2"
        "; echo Submitted batch job 7",
    )
    command("srun", "exit 0")
    study = submitted(launch, write(tmp_path, axes=GPUS))
    end_all(study, but=("a40_bs32", "a100_bs64"))
    for name in ("a40_bs32", "a100_bs64"):
        end(study, name, "failed", reason="node")
    code, out, err = launch("plan", study.path)
    assert (code, "2 runs, 2 arrays, at most " in out) == (0, True), err
    assert "the first of 2 arrays starts about 01 Jan 10:00; " in err
    end_all(study)
    code, out, err = launch("plan", study.path)
    assert (code, "0 runs, 0 arrays" in out) == (0, True)
    assert err.endswith("nothing to run: no run is missing or failed, or none fits\n")
