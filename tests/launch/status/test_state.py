"""The state of runs: from the record, and from Slurm if it has no end. Slurm is a shell script."""

import json
import re
import time
from pathlib import Path

import pytest

from configs.load import load, to_tree
from runs.folder import RunFolder, make_run
from runs.jobs import save_script, scripts_folder
from runs.records import RecordWriter
from tests.launch.conftest import DIGITS


def sample_run(
    *events: str, job: str | None = "7", has_attempt: bool = True, **fields: object
) -> RunFolder:
    """Make a run, submitted as `job`, whose first attempt recorded these events."""
    run = make_run("digits", to_tree(load(DIGITS, ["train.steps=600"])))
    if job:
        scripts_folder(run).mkdir(exist_ok=True)
        save_script(run, job, "#!/bin/bash\n")
    if has_attempt:
        run.attempt(1).mkdir()
        run.note(1, slurm={"job": job, "nodelist": "n[1-2]"} if job else None)
    writer = RecordWriter(run.path, attempt=1)
    for event in events:
        writer.event(event, **(fields if event == events[-1] else {}))
    writer.close()
    return run


def row(launch, run: RunFolder) -> dict[str, object]:
    code, out, _ = launch("status", run.path, "--json")
    assert code == 0
    (one,) = json.loads(out)
    return one


@pytest.mark.parametrize(
    ("step", "since", "state"),
    [
        (300, [], "running"),
        (500, [], "saving"),
        (500, ["saved"], "running"),
        (600, ["saved"], "evaluating"),
        (600, ["saved", "evaluated"], "sampling"),
        (600, ["saved", "evaluated", "drawn"], "running"),
        (600, ["started"], "running"),
    ],
)
def test_a_run_that_saves_or_samples_says_so_and_has_no_eta(
    step: int, since: list[str], state: str, launch, command
) -> None:
    command("squeue", "echo '7|RUNNING|n1|1:00:00||None'")
    run = sample_run("started")
    writer = RecordWriter(run.path, attempt=1)
    for at in (step - 100, step):
        writer.write(step=at, images=at, loss=1.0)
    for event in since:
        if event == "drawn":
            run.samples.mkdir()
            (run.samples / f"step-{step:09d}.png").touch()
        else:
            writer.event(event, step=step)
    writer.close()
    one = row(launch, run)
    assert (one["state"], "eta_s" in one) == (state, state == "running")
    assert one["left_s"] == 3600


def test_slurm_is_asked_once_for_all_runs(launch, command, tmp_path: Path, site: Path) -> None:
    command("squeue", f'echo "$@" >>{tmp_path}/asked; cat {tmp_path}/queue')
    (tmp_path / "queue").write_text("7|PENDING||||None\n8|RUNNING||||\n")
    command("sacct", "exit 1")
    sample_run("queued", has_attempt=False)
    sample_run("started", job="8")
    code, out, _ = launch("status")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[-2:]] == ["running", "queued"]
    (query,) = (tmp_path / "asked").read_text().splitlines()
    assert "--jobs=7,8,1 " in query


@pytest.mark.parametrize("squeue", ["echo down >&2; exit 1", "exec /nowhere/squeue"])
def test_without_an_answer_from_slurm_the_record_is_shown(squeue: str, launch, command) -> None:
    command("squeue", squeue)
    run = sample_run("queued", has_attempt=False)
    code, out, err = launch("status", run.path, "--json")
    assert (code, json.loads(out)[0]["state"]) == (0, "queued")
    assert "without Slurm" in err


def test_outer_settings_of_squeue_do_not_reach_it(
    launch, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(
        "squeue", 'echo "7|PENDING||||${SQUEUE_STATES-}${SBATCH_X-}${SLURM_JOB_ID-}$SLURM_CONF"'
    )
    for name in ("SQUEUE_STATES", "SBATCH_X", "SLURM_JOB_ID", "SLURM_CONF"):
        monkeypatch.setenv(name, name)
    assert row(launch, sample_run("queued", has_attempt=False))["why"] == "SLURM_CONF"


def test_a_folder_without_runs_gives_no_rows_and_a_missing_one_is_misuse(
    launch, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert launch("status", tmp_path / "empty") == (0, "", f"no run in {tmp_path}/empty\n")
    assert launch("status") == (0, "", f"no run in {tmp_path}/logs\n")
    code, _, err = launch("status", tmp_path / "nope")
    assert (code, "no such folder" in err) == (2, True)


def test_a_pending_job_is_cancelled_and_its_run_stopped(launch, command, tmp_path: Path) -> None:
    command("squeue", "echo '7|PENDING||||Priority'")
    command("scancel", f'echo "$@" >>{tmp_path}/cancelled')
    run = sample_run("queued", has_attempt=False)
    code, out, _ = launch("cancel", run.path)
    assert (code, out) == (0, f"{run.path}: job 7 cancelled; stopped\n")
    assert (tmp_path / "cancelled").read_text() == "7\n"
    assert [record["event"] for record in run.records()] == ["queued", "stopped"]


def test_a_running_job_is_cancelled_and_writes_its_own_end(launch, command) -> None:
    command("squeue", "echo '7|RUNNING|n1|||None'")
    command("scancel", "exit 0")
    run = sample_run("queued", "started")
    assert launch("cancel", run.path)[0] == 0
    assert [record["event"] for record in run.records()] == ["queued", "started"]


def test_a_run_in_a_session_is_stopped_but_the_session_is_not(launch, command) -> None:
    command("scancel", "exit 99")
    run = sample_run("started", job=None)
    run.note(1, slurm={"job": "9"})
    assert launch("cancel", run.path)[0] == 0
    assert run.stop_file.exists()


def test_an_ended_run_is_not_cancelled(launch, command) -> None:
    command("scancel", "exit 99")
    run = sample_run("started", "done")
    code, out, err = launch("cancel", run.path)
    assert (code, out, err) == (0, "", f"{run.path}: already done\n")


def test_a_refusal_by_scancel_is_reported(launch, command) -> None:
    command("squeue", "echo '7|RUNNING|n1|||None'")
    command("scancel", "echo 'Access/permission denied' >&2; exit 1")
    code, _, err = launch("cancel", sample_run("started").path)
    assert (code, err) == (1, "scancel 7: Access/permission denied\n")


def test_a_damaged_run_is_a_row_and_hides_no_other(launch, command) -> None:
    command("squeue", "true")
    good, bad = sample_run("started", "done"), sample_run("started", "done")
    bad.manifest_file.write_text("[]")
    code, out, _ = launch("status", good.path.parent, "--json")
    assert code == 0
    rows = {one["run"]: one for one in json.loads(out)}
    assert rows[str(good.path)]["state"] == "done"
    assert rows[str(bad.path)]["state"] == "unreadable"
    assert "manifest.json" in rows[str(bad.path)]["why"]
    code, out, _ = launch("status", good.path.parent, "--once")
    assert "unreadable" in out


def training_run(
    *, data: float, nodes: int = 1, age_s: float = 0.0, attempt: int = 1, **readings: float
) -> RunFolder:
    """Make a run that trains now; its GPUs, two a node, were read up to `age_s` seconds ago."""
    run, now = sample_run("started"), time.time()
    lines = [
        {"step": n, "loss": 1.0, "time": now - 100 + n, "train_s": float(n), "data_s": data * n}
        | {"attempt": 1, "host_bound": 0.9}
        for n in range(100)
    ]
    with run.metrics_file.open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    (run.attempt(attempt) / "gpu").mkdir(parents=True)
    for node in range(1, nodes + 1):
        rows = [
            {"time": now - age_s - 10 * n, "span_s": 10.0, "gpu": gpu} | readings
            for n in range(3)
            for gpu in range(2)
        ]
        logs = [{"gpus": [{"max_sm_mhz": 1410.0}] * 2}, *rows]
        (run.attempt(attempt) / "gpu" / f"n{node}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in logs)
        )
    return run


RUNNING = "echo '7|RUNNING|n1|||None'"


def test_a_run_that_trains_shows_how_busy_its_nodes_are(launch, command) -> None:
    command("squeue", RUNNING)
    one = row(launch, training_run(data=0.01, nodes=6, busy=0.97, power_w=310.0, sm_mhz=1400.0))
    assert one["gpus"] == "n1 97% 620 W, n2 97% 620 W, n3 97% 620 W, n4 97% 620 W, +2 nodes"
    assert one["gpu_busy"] == pytest.approx(0.97)
    assert one["power_w"] == pytest.approx(12 * 310)
    assert "why" not in one
    _, out, _ = launch("status", "--all")
    assert "n4 97% 620 W, +2 nodes" in out


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        (
            {"busy": 0.6, "data": 0.31},
            "input-bound: the loader waits 31% of the step, GPU idle 40% of the time",
        ),
        (
            {"busy": 0.6, "data": 0.01},
            "host-bound: the GPU waits for the launch of 90% of the steps, GPU idle 40% of the "
            "time",
        ),
        ({"busy": 0.99, "data": 0.0, "sm_mhz": 1100.0}, "clocks at 1.10 of 1.41 GHz"),
    ],
)
def test_a_run_that_is_slower_than_it_should_be_says_why(
    readings: dict[str, float], why: str, launch, command
) -> None:
    command("squeue", RUNNING)
    assert row(launch, training_run(**{"sm_mhz": 1400.0} | readings))["why"] == why
    _, out, _ = launch("status", "--all")
    assert re.search(rf"done ~\d\d:\d\d; {why}$", out, re.M)


def test_readings_of_the_past_are_not_shown_as_those_of_now(launch, command) -> None:
    command("squeue", RUNNING)
    one = row(launch, training_run(data=0.01, age_s=3600.0, busy=0.1, sm_mhz=300.0))
    assert not {"gpus", "gpu_busy", "power_w"} & one.keys()
    assert one["why"].startswith("host-bound")


def test_odd_values_in_records_hide_nothing(launch, command) -> None:
    command("squeue", RUNNING)
    run = training_run(data=0.01, busy=0.97)
    text = run.metrics_file.read_text()
    odd = text.replace('"data_s": 0.9', '"data_s": "x", "y": 0').replace("0.9}", "[]}")
    run.metrics_file.write_text(odd)
    assert odd != text
    assert row(launch, run)["gpus"] == "n1 97%"


def test_a_run_that_has_ended_has_no_present_load(launch) -> None:
    run = training_run(data=0.5, busy=0.1)
    run.record_event(1, "done", step=600)
    assert not {"gpus", "why"} & row(launch, run).keys()
