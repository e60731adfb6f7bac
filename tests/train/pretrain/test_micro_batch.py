"""`train.micro_batch: auto` on a CPU: only running out of memory makes a micro batch too large."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from configs.checks.batch import divide
from configs.schema import Pretrain
from runs.attempt.open import open_attempt
from runs.folder import RunFolder
from tests.real_runs import DIGITS, clean_environment, opened, two_ranks
from train.engine.distributed import Ranks, process_group
from train.engine.failure import RunFailure
from train.pretrain import micro_batch_trial
from train.pretrain.micro_batch_search import tuned_micro_batch

# A tiny network on images of 256 kB each.
WIDE = [
    "model.width=32", "model.depth=1", "model.heads=2", "model.patch=16", "data.source=dummy",
    "data.size=64", "data.channels=16", "data.held_out=0", "data.images=512",
    "train.global_batch=512", "train.micro_batch=auto", "train.steps=1", "sample.per_class=1",
    "sample.steps=1", "sample.classes=1", "log.tensorboard=false",
]  # fmt: skip
ALONE = Ranks(rank=0, world=1, local_rank=0, local_world=1, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def base_kib() -> int:
    """The memory that a trial's process maps before it has a network, in KiB."""
    code = (
        "import train.pretrain.run, train.pretrain.micro_batch_trial\n"
        "print(open('/proc/self/status').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(OMP_NUM_THREADS="1", PYTHONPATH=str(Path.cwd())),
        capture_output=True,
        text=True,
        check=True,
    )
    return int(next(line for line in done.stdout.splitlines() if "VmPeak" in line).split()[1])


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return opened(DIGITS, WIDE)


def start_children_with(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each child process begin with a line of shell."""
    file = tmp_path / "python.sh"
    file.write_text(f'#!/bin/bash\n{script}\nexec "{sys.executable}" "$@"\n')
    file.chmod(0o700)
    monkeypatch.setattr("train.pretrain.micro_batch_search.sys.executable", str(file))


def config_of(run: RunFolder, attempt: int = 1) -> Pretrain:
    config = run.config(attempt)
    assert isinstance(config, Pretrain)
    return config


def limit(base_kib: int, *, more_mib: int) -> int:
    """KiB for `ulimit -v` with which a trial, which leaves 5 % free, can map `more_mib`."""
    return int((base_kib + more_mib * 1024) / 0.95)


def test_the_largest_that_fits_is_found_and_reused_on_resume(
    run: RunFolder, base_kib: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_children_with(f"ulimit -v {limit(base_kib, more_mib=400)}", tmp_path, monkeypatch)
    micro = tuned_micro_batch(run, config_of(run), ALONE, 1)
    kept = json.loads((run.attempt(1) / "tuned.json").read_text())
    assert kept["micro_batch"] == micro
    assert micro
    assert kept["tried"][str(micro)] == "fits"
    assert kept["tried"][str(2 * micro)] == "oom"
    last = list(run.records())[-1]
    assert (last["event"], last["micro_batch"], last["tried"]) == ("tuned", micro, kept["tried"])

    assert open_attempt(run.path, ["train.steps=2"]) is not None
    start_children_with("exit 1", tmp_path, monkeypatch)
    assert tuned_micro_batch(run, config_of(run, 2), ALONE, 2) == micro
    assert list(run.records())[-1]["found_in_attempt"] == 1
    assert not (run.attempt(2) / "tuning").exists()


def test_another_layout_is_searched_again(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = {"replicate": 2, "shard": 1, "tensor": 1, "reshard": True, "device": "cpu"}
    kept = {"micro_batch": 4, "tried": {}, "attempt": 1, "setting": setting}
    (run.attempt(1) / "tuned.json").write_text(json.dumps(kept))
    assert open_attempt(run.path, ["train.steps=2"]) is not None
    start_children_with("echo tried; exit 3", tmp_path, monkeypatch)
    with pytest.raises(RunFailure, match="tried"):
        tuned_micro_batch(run, config_of(run, 2), ALONE, 2)


def test_a_fixed_micro_batch_is_not_tuned(run: RunFolder) -> None:
    train = config_of(run).train.model_copy(update={"micro_batch": 8})
    config = config_of(run).model_copy(update={"train": train})
    assert tuned_micro_batch(run, config, ALONE, 1) is None
    assert not (run.attempt(1) / "tuned.json").exists()


def test_if_not_one_image_fits_the_run_fails_with_oom_and_a_fix(
    run: RunFolder, base_kib: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 0.6 GB of weights, and three times that for gradients and moments.
    wide = opened(DIGITS, [*WIDE, "model.width=2048", "model.depth=2"])
    start_children_with(f"ulimit -v {limit(base_kib, more_mib=400)}", tmp_path, monkeypatch)
    with pytest.raises(RunFailure, match=r"layout\.shard") as failure:
        tuned_micro_batch(wide, config_of(wide), ALONE, 1)
    assert failure.value.reason == "host_oom"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo first; echo second; exit 3", "status 3 and no verdict\nfirst\nsecond"),
        ("kill -SEGV $$", "status -11"),
        ("kill -KILL $$", "status -9"),
    ],
    ids=["exit", "segmentation fault", "killed"],
)
def test_a_child_that_dies_without_a_verdict_did_not_run_out_of_memory(
    run: RunFolder, script: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_children_with(script, tmp_path, monkeypatch)
    with pytest.raises(RunFailure) as failure:
        tuned_micro_batch(run, config_of(run), ALONE, 1)
    assert failure.value.reason == "crash"
    assert "micro batch 16 failed on rank 0" in str(failure.value)
    assert expected in str(failure.value)
    assert not (run.attempt(1) / "tuned.json").exists()


@pytest.mark.parametrize(("retries", "fits"), [((0, 5, 7, 7), True), ((0, 0, 0, 1), False)])
def test_a_micro_batch_with_which_the_allocator_thrashes_does_not_fit(
    run: RunFolder, retries: tuple[int, ...], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(retries)
    monkeypatch.setattr(micro_batch_trial, "_allocation_retries", lambda _: next(counts))
    config = config_of(run)
    layout = divide(config, world=1, tuned=1)
    refused = contextlib.nullcontext() if fits else pytest.raises(torch.OutOfMemoryError)
    with process_group(ALONE), refused:
        micro_batch_trial._train(config, layout, ALONE)


def torchrun(run: RunFolder, script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Start two ranks, each beginning with a line of shell."""
    file = tmp_path / "rank.sh"
    file.write_text(f'#!/bin/bash\n{script}\nexec "{sys.executable}" -m train "{run.path}"\n')
    file.chmod(0o700)
    return two_ranks("--no-python", str(file), timeout_s=500)


@pytest.mark.long
def test_two_ranks_agree_though_one_of_them_alone_runs_out_of_memory(
    base_kib: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    # Images of 1 MB: then 5 % is more than the memory that a run needs and a trial does not.
    run = opened(DIGITS, [*WIDE, "data.size=128", "model.patch=32"])
    # The child of rank 0 then waits in a collective for that of rank 1.
    least = limit(base_kib, more_mib=1200)
    done = torchrun(run, f"[[ $RANK == 0 ]] || ulimit -v {least}", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = json.loads((run.attempt(1) / "tuned.json").read_text())
    assert set(kept["tried"].values()) == {"fits", "oom"}
    assert kept["tried"][str(kept["micro_batch"])] == "fits"
    manifest = json.loads(run.manifest_file.read_text())
    assert f'"micro_batch": {kept["micro_batch"]}' in json.dumps(manifest)
    assert [record["event"] for record in run.records() if "event" in record][-1] == "done"


@pytest.mark.long
def test_two_ranks_fail_with_the_reason_of_the_one_whose_child_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"no weights")
    attempt = open_attempt(DIGITS, [*WIDE, f"model.init_from={weights}"])
    assert attempt is not None
    done = torchrun(RunFolder(attempt.parent.parent), "", tmp_path)
    assert done.returncode != 0
    note = json.loads((attempt / "error.json").read_text())
    assert note["reason"] in ("config", "crash")
    assert "a trial step with micro batch 16 failed on rank" in note["message"]
    assert "weights.safetensors" in note["message"]
