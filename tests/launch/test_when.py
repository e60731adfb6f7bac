"""`ditbench when`: shapes of a cluster by the time at which they would be done."""

import json
import time
from pathlib import Path

import pytest

from launch import forecast
from launch.forecast import ForecastAnswer
from launch.slurm import client
from tests.launch.conftest import DIGITS

# By type of GPU: seconds per step, and seconds until a job would start.
STEP_S = {"a40": 2.0, "a100": 1.0}
STARTS_IN_S = {"a40": 60, "a100": 7200}


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
    command("sacct", "exit 1")

    def ask(queries):
        for _, words in queries:
            keys = dict(word.split("=") for word in words)
            gpu = keys["resources.gpu"].strip('"')
            step = STEP_S[gpu] / int(keys["resources.nodes"]) / int(keys["resources.gpus_per_node"])
            ends = {"value": step, "low": step / 2, "high": 2 * step, "source": "data sheet"}
            facts = {"fits": True, "step_s": ends, "micro_batch": 8, "type": gpu}
            yield ForecastAnswer(gpus={gpu: facts})

    monkeypatch.setattr(forecast, "ask", lambda queries: list(ask(queries)))


WORDS = ("train.steps=3600", "checkpoint.every=3600")


def test_shapes_are_sorted_by_their_finish_with_hours_and_money(launch, tmp_path: Path) -> None:
    (tmp_path / "rates.yaml").write_text("a40: 2\n")
    words = (*WORDS, "--rates", tmp_path / "rates.yaml", "--json")
    code, out, err = launch("when", DIGITS, *words)
    rows = json.loads(out)
    assert code == 0, err
    assert [row["shape"] for row in rows] == [
        "a40:2x2", "a40:1x2", "a40:1x1", "a100:1x2", "a100:1x1",
    ]  # fmt: skip
    best = rows[0]
    # 180 s + 2 saves of 5 s + 1.1 x 3600 steps of 0.5 s (0.25 to 1 s).
    assert best["finish"] - best["start"] == pytest.approx(180 + 10 + 1980)
    assert best["finish_low"] - best["start"] == pytest.approx(180 + 10 + 990)
    assert best["finish_high"] - best["start"] == pytest.approx(180 + 10 + 3960)
    assert best["gpu_hours"] == pytest.approx(4 * 2170 / 3600)
    assert best["money"] == pytest.approx(2 * best["gpu_hours"])
    assert (best["by"], best["wait_min"]) == ("data sheet", "no history")
    assert "money" not in rows[3]


def test_one_line_names_the_best_and_the_types_that_may_be_as_early(launch) -> None:
    code, out, err = launch("when", DIGITS, *WORDS)
    assert (code, out.splitlines()[2].split()[0]) == (0, "a40:2x2")
    assert err.startswith("first done: a40:2x2, about ")
    # The A100 cannot be as early: it starts when the A40 are done at the latest.
    assert err.endswith(f"ditbench submit {DIGITS} {' '.join(WORDS)} --first a40:2x2\n")
    err = launch("when", DIGITS, "train.steps=36000", "resources.hours=auto")[2]
    assert err.endswith("--first a40:2x2,a100:1x2\n")
    err = launch("when", DIGITS, *WORDS, "--partition", "gpu", "--site", "local")[2]
    assert err.endswith(f" {WORDS[-1]} --partition=gpu --site=local --first a40:2x2\n")


def test_types_that_begin_with_a_digit_and_whole_nodes_of_any_size_are_asked_about(
    launch, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = r"x1|gpu:2080ti:6(S:0-1)\nx2|gpu:1g.10gb:7,gpu:a40:1\nx3|gpu:2(S:0)\n"
    command("sinfo", f"printf '{rows}'")
    assert client.gpus() == {"": (1, 2), "1g.10gb": (1, 7), "2080ti": (1, 6), "a40": (1, 1)}
    for name in ("2080ti", "1g.10gb"):
        monkeypatch.setitem(STEP_S, name, 1.0)
    out, err = launch("when", DIGITS, *WORDS, "--json")[1:]
    shapes = {row["shape"] for row in json.loads(out)}
    assert shapes >= {f"{gpu}:1x{n}" for gpu in ("2080ti", "1g.10gb") for n in (1, 2, 4)}
    assert "2080ti:1x6: train.global_batch 64 does not divide" in err


def test_the_history_of_waits_widens_the_interval(launch, command) -> None:
    command(
        "sacct",
        r"""for n in 1 2 3 4 5 6 7 8 9; do
        echo "2036-01-01T10:00:00|2036-01-01T1$n:00:00|cpu=1,gres/gpu:a40=2,gres/gpu=2"; done
        echo "2036-01-01T10:00:00|2036-01-03T10:00:00|cpu=1,gres/gpu:a100=2"
        echo "2020-01-01T10:00:00|2020-01-09T10:00:00|cpu=1,gres/gpu:a40=2" """,
    )
    rows = json.loads(launch("when", DIGITS, *WORDS, "--json")[1])
    assert (rows[0]["wait_min"], rows[0]["wait_90_min"]) == (300, 492)
    late = rows[0]["finish_high"] - (180 + 10 + 3960)
    assert late == pytest.approx(time.time() + 8.2 * 3600, abs=120)
    assert rows[3]["wait_min"] == "no history"


def test_shapes_that_sbatch_refuses_come_last_and_a_study_is_refused(launch, command) -> None:
    command("sbatch", "echo no >&2; exit 1")
    code, _, err = launch("when", DIGITS, *WORDS)
    assert (code, err) == (1, "on no shape of this cluster a finish can be forecast\n")
    code, _, err = launch("when", DIGITS, "train.steps=1,2")
    assert (code, "a study compares GPUs; name the config of one run" in err) == (2, True)
