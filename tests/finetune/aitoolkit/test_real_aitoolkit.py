"""Runs by the unmodified ai-toolkit that `AI_TOOLKIT` names, on a tiny random Flux."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from diffusers import FluxPipeline
from safetensors.torch import load_file

from configs.checks.aitoolkit import REPLACED, check_aitoolkit, taken
from configs.checks.aitoolkit_example import example, settings
from configs.checks.aitoolkit_source import architectures, find_home, known_keys
from configs.load import load
from finetune.aitoolkit.checkpoint import metadata_step
from finetune.aitoolkit.config import Workspace, lay_out_dataset, toolkit_config
from finetune.aitoolkit.job_db import JobTable
from finetune.tiny_flux import make_tiny_flux
from runs.folder import RunFolder, find_runs
from runs.records import valid
from tests.finetune.aitoolkit_runs import events, save_assistant, steps, write_job
from tests.real_runs import body, clean_environment, newest_run
from tests.slurm.cluster import wait_until

AI_TOOLKIT = os.environ.get("AI_TOOLKIT", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not AI_TOOLKIT, reason="AI_TOOLKIT names no checkout of ai-toolkit"),
]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a config that both engines accept, with its model and images beside it."""
    folder = tmp_path_factory.mktemp("job")
    make_tiny_flux(folder / "tiny")
    return write_job(folder / "job.yaml", folder / "tiny")


@pytest.fixture(scope="module")
def done(job: Path) -> RunFolder:
    """Return the run of the job by ai-toolkit."""
    logs = job.parent / "done"
    body(job, "engine=aitoolkit", logs=logs, job="finetune", AI_TOOLKIT=AI_TOOLKIT)
    return newest_run(logs)


def test_keys_that_ditbench_sets_are_keys_of_ai_toolkit() -> None:
    known = known_keys(Path(AI_TOOLKIT))
    for name in (*taken(), *REPLACED):
        group, _, key = name.rpartition(".")
        assert key in known[group], name


# Starts the job of each config, until the first weights that are not there.
_START = """
import sys, traceback
from toolkit.job import get_job
for file in sys.argv[1:]:
    job = get_job(file)
    try:
        job.run()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        print("ended", "loading" if "load_model" in {frame.name for frame in frames} else error)
"""


def test_each_model_of_its_interface_passes_the_checks_and_starts_up_to_its_weights(
    tmp_path: Path, job: Path
) -> None:
    known = architectures(Path(AI_TOOLKIT))
    names = [name for name in settings(Path(AI_TOOLKIT)) if name.partition(":")[0] in known]
    files = []
    for number, name in enumerate(names):
        (tmp_path / "one.yaml").write_text(example(name))
        config = load(tmp_path / "one.yaml", [f"data.folder={job.parent / 'tiny/images'}"])
        check_aitoolkit(config)
        place = tmp_path / str(number)
        lay_out_dataset(config, place / "dataset")
        JobTable(place / "job.db")
        workspace = Workspace(
            output=place / "out", database=place / "job.db", dataset=place / "dataset"
        )
        files.append(place / "config.json")
        made = toolkit_config(config, workspace, start=0, attempt=1)
        files[-1].write_text(json.dumps(made))
    # An encoder that no model folder holds.
    assert "umt5" in str(known["wan22_14b"])
    home = find_home()
    done = subprocess.run(
        [str(home.python), "-c", _START, *map(str, files)],
        cwd=home.folder,
        env=clean_environment(AITK_JOB_ID="run", HF_HUB_OFFLINE="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    ends = [line for line in done.stdout.splitlines() if line.startswith("ended ")]
    assert ends == ["ended loading"] * len(names), done.stderr[-2000:]
    assert len(names) > 40


def test_it_trains_from_the_same_yaml_as_the_embedded_engine(job: Path, done: RunFolder) -> None:
    logs = job.parent / "embedded"
    body(job, "engine=embedded", logs=logs, job="finetune")
    other = newest_run(logs)
    for run in (done, other):
        assert events(run, "done")[0]["step"] == 12
        assert len([r for r in steps(run) if "loss" in r]) >= 11
        for prompt in range(2):
            assert run.prompt_sample(prompt, 0).is_file()
            assert run.prompt_sample(prompt, 12).is_file()
    assert done.manifest()["attempts"][0]["engine"] == "aitoolkit"
    ours, theirs = (load_file(run.lora / "step-000000012.safetensors") for run in (other, done))
    assert {name: tensor.shape for name, tensor in ours.items()} == {
        name: tensor.shape for name, tensor in theirs.items()
    }


def test_both_engines_learn_the_same_from_the_same_yaml(job: Path) -> None:
    losses = []
    for engine in ("embedded", "aitoolkit"):
        logs = job.parent / f"learns-{engine}"
        settings = ("train.steps=300", "sample.every=null", "checkpoint.every=300")
        body(job, f"engine={engine}", *settings, logs=logs, job="finetune", AI_TOOLKIT=AI_TOOLKIT)
        losses.append([r["loss"] for r in steps(newest_run(logs)) if r["step"] > 1 and "loss" in r])
    ours, theirs = map(np.array, losses)
    assert len(ours) == len(theirs) == 299
    # Their draws differ, so that a mean over 299 steps varies by 0.5 %.
    assert theirs.mean() == pytest.approx(ours.mean(), rel=0.03)
    for losses_of in (ours, theirs):
        assert losses_of[-100:].mean() < 0.9 * losses_of[:100].mean()


def test_an_assistant_and_what_only_it_has_are_passed_on(job: Path) -> None:
    logs = job.parent / "its-own"
    file = save_assistant(job.parent / "assistant.safetensors")
    own = ("model.arch=flux", "train.optimizer=automagic", "train.timestep_type=weighted")
    passed = [f"aitoolkit.{key}" for key in (*own, "network.type=lokr")]
    settings = ["sample.guidance=0", f"flux.assistant_lora={file}", *passed]
    body(job, "engine=aitoolkit", *settings, logs=logs, job="finetune", AI_TOOLKIT=AI_TOOLKIT)
    run = newest_run(logs)
    assert events(run, "done")[0]["step"] == 12
    names = load_file(run.lora / "step-000000012.safetensors")
    assert {name.rpartition(".")[2] for name in names} == {"alpha", "lokr_w1", "lokr_w2"}
    # All layers, as network_kwargs of ours are not for every model.
    assert any("norm" in name for name in names)


def test_its_first_step_is_not_logged_and_scheduled_saves_are_a_step_late(done: RunFolder) -> None:
    assert [r["step"] for r in steps(done) if "loss" not in r] == [1]
    assert [r["step"] for r in events(done, "saved")] == [6, 11, 12]
    assert [metadata_step(file) for file in sorted(done.lora.iterdir())] == [5, 10, 12]
    last = events(done, "done")[0]
    assert all(last[f"{name}_s"] > 0 for name in ("setup", "load", "cache", "train", "save"))


def test_its_lora_is_read_by_diffusers(job: Path, done: RunFolder) -> None:
    pipeline = FluxPipeline.from_pretrained(job.parent / "tiny" / "model")
    pipeline.load_lora_weights(str(done.lora / "step-000000012.safetensors"))
    assert pipeline.get_list_adapters()


@contextmanager
def started(job: Path, logs: Path, *overrides: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the job; end it when the `with` block ends."""
    logs.mkdir(exist_ok=True)
    with (logs / "out").open("ab") as out:
        running = subprocess.Popen(
            ["bash", "jobs/finetune.sbatch", str(job), *overrides],
            env=clean_environment(LOGS=str(logs), AI_TOOLKIT=AI_TOOLKIT),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield running
    finally:
        if running.poll() is None:
            # torchrun then ends its rank, and ai-toolkit dies with the rank.
            os.killpg(running.pid, signal.SIGINT)
            os.killpg(running.pid, signal.SIGINT)
            running.wait(60)


def test_a_signal_saves_and_stops_it_and_it_resumes_from_the_newest_whole_checkpoint(
    job: Path, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    with started(
        job, logs, "engine=aitoolkit", "train.steps=100000", "sample.every=null"
    ) as running:
        wait_until(
            lambda: [r for run in find_runs(logs) for r in events(run, "saved")], timeout=120
        )
        run = newest_run(logs)
        wait_until(lambda: any(r["step"] >= 8 for r in steps(run)), timeout=60)
        running.send_signal(signal.SIGUSR1)
        assert running.wait(120) == 0
    paused = events(run, "paused")[0]["step"]
    assert paused == events(run, "saved")[-1]["step"] >= 8
    names = sorted(path.name for path in run.checkpoints.glob("step-*"))
    assert names[-1] == f"step-{paused:09d}"
    # By itself, ai-toolkit would resume from the file whose inode changed last, here the oldest.
    for name in names[:-1]:
        (run.checkpoints / name / "lora.safetensors").chmod(0o640)
    older = int(names[-2].removeprefix("step-"))
    os.truncate(run.checkpoints / names[-1] / "lora.safetensors", 1000)
    body(run.path, f"train.steps={paused}", logs=logs, job="finetune", AI_TOOLKIT=AI_TOOLKIT)
    assert events(run, "started")[1]["step"] == older
    assert (run.checkpoints / f"{names[-1]}.damaged").is_dir()
    recorded = [r["step"] for r in valid(run.records()) if "drawn_images" not in r]
    assert sorted(recorded) == list(range(1, paused + 1))
    assert events(run, "done")[0]["step"] == paused
    seeds = [
        json.loads((run.attempt(n) / "aitoolkit" / "config.json").read_text())["config"]["process"][
            0
        ]["training_seed"]
        for n in (1, 2)
    ]
    assert seeds[0] != seeds[1]
    # Its output names the file that it loaded; the optimizer beside it is from the same save.
    output = (run.attempt(2) / "aitoolkit" / "output.log").read_text()
    assert f"lora_{older:09d}.safetensors ####" in output
    assert "Loading optimizer state" in output


def held_out_losses(run: RunFolder) -> dict[int, float]:
    return {
        int(r["step"]): float(r["held_out_loss"]) for r in run.records() if "held_out_loss" in r
    }


@pytest.mark.timeout(2400)
def test_three_kills_leave_the_loss_of_the_uninterrupted_run_within_2_percent(
    job: Path, tmp_path: Path
) -> None:
    keys = [
        "engine=aitoolkit", "train.steps=600", "checkpoint.every=50", "sample.every=null",
        "validation.held_out=2", "validation.every=100",
    ]  # fmt: skip
    whole_logs, logs = tmp_path / "whole", tmp_path / "killed"
    body(job, *keys, logs=whole_logs, job="finetune", AI_TOOLKIT=AI_TOOLKIT)
    whole, source = newest_run(whole_logs), job

    def has_taken(step: int) -> bool:
        return any(r["step"] >= step for run in find_runs(logs) for r in steps(run))

    for step in (130, 290, 430):
        with started(source, logs, *(keys if source == job else [])) as running:
            wait_until(partial(has_taken, step), timeout=400)
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        source = newest_run(logs).path
    body(source, logs=logs, job="finetune", AI_TOOLKIT=AI_TOOLKIT)
    killed = newest_run(logs)
    assert len({event["step"] for event in events(killed, "started")}) == 4
    # The draws differ after a resume: a mean of 600 steps varies by 0.4 %.
    means = [
        np.mean([r["loss"] for r in valid(run.records()) if "loss" in r]) for run in (whole, killed)
    ]
    assert means[1] == pytest.approx(means[0], rel=0.02)
    expected, found = held_out_losses(whole), held_out_losses(killed)
    assert found[1] == expected[1]
    assert expected[501] < 0.9 * expected[1]
    assert found[501] == pytest.approx(expected[501], rel=0.02)
