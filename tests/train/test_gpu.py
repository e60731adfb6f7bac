"""Training on a GPU, where a CPU shows nothing: CUDA kernels, their memory and precision, and NCCL.

Each run is a process of its own, as in a job, since a GPU's state cannot be undone in one. They run
with no more than torch, numpy, scipy and pydantic.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pydantic", reason="needs pydantic, with which configs are read")

from runs.attempt.close import close_attempt
from runs.attempt.open import open_attempt
from runs.folder import RunFolder
from runs.json_files import read_error_note

pytestmark = pytest.mark.gpu

DUMMY = Path("configs/pretrain/dummy-latents.yaml")
# A DiT on 64 tokens that trains 20 steps in a second.
SMALL = (
    "model.width=256", "model.depth=2", "model.heads=4", "model.patch=2", "data.size=16",
    "data.channels=4", "data.images=256", "data.workers=0", "train.steps=20",
    "train.global_batch=32", "train.compile=false", "train.precision=fp32", "checkpoint.every=10",
    "log.every=1", "log.tensorboard=false", "sample.steps=2", "sample.classes=1",
)  # fmt: skip


def train(
    source: Path, *keys: str, ranks: int = 1, fails: bool = False, gpus: str | None = None
) -> RunFolder:
    """Carry out an attempt at a run of a config, or at a run, and close it."""
    attempt = open_attempt(source, list(keys), kind="pretrain")
    run, number = RunFolder(attempt.parents[1]), int(attempt.name)
    launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    words = [*(launcher if ranks > 1 else []), "train", str(run.path), "--attempt", str(number)]
    hidden = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
    done = subprocess.run(
        [sys.executable, "-m", *words], env=os.environ | hidden, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    close_attempt(attempt, status=done.returncode)
    assert bool(done.returncode) == fails, done.stdout + done.stderr
    return run


def losses(run: RunFolder) -> list[float]:
    """The loss of every step of the newest attempt, from 1."""
    last = run.attempts()[-1]
    found = [r["loss"] for r in run.records() if "loss" in r and r["attempt"] == last]
    assert found
    return found


def agree(a: Sequence[float], b: Sequence[float], *, within: float) -> bool:
    return len(a) == len(b) and all(abs(x / y - 1) < within for x, y in zip(a, b, strict=True))


def capability() -> tuple[int, int]:
    import torch

    found: tuple[int, int] = torch.cuda.get_device_capability()
    return found


@pytest.fixture(scope="module")
def eager() -> RunFolder:
    """The run in float32 that others are compared with."""
    return train(DUMMY, *SMALL)


def test_a_gpu_trains_as_a_cpu_does_and_says_what_it_is(eager: RunFolder) -> None:
    assert agree(losses(eager), losses(train(DUMMY, *SMALL, gpus="")), within=1e-3)
    (entry,) = eager.entries()
    assert entry["placement"][0]["gpu"]
    assert entry["attention"]
    assert all(record["gpu_gb"] > 0 for record in eager.records() if "loss" in record)


def test_two_ranks_over_nccl_train_as_one_does(eager: RunFolder) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    assert agree(losses(train(DUMMY, *SMALL, ranks=2)), losses(eager), within=1e-3)
    sharded = train(DUMMY, *SMALL, "layout.shard=2", ranks=2)
    assert agree(losses(sharded), losses(eager), within=1e-3)


def test_compiled_blocks_train_as_eager_ones_do(eager: RunFolder) -> None:
    compiled = train(DUMMY, *SMALL, "train.compile=true")
    assert agree(losses(compiled), losses(eager), within=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_lower_precision_changes_the_loss_a_little(precision: str, eager: RunFolder) -> None:
    if capability() < (8, 0):
        pytest.skip(f"{precision} needs compute capability 8.0")
    run = train(DUMMY, *SMALL, f"train.precision={precision}")
    assert losses(run) != losses(eager)
    assert agree(losses(run), losses(eager), within=0.02)


def test_a_deterministic_run_resumes_to_the_bit() -> None:
    keys = (*SMALL, "train.deterministic=true", "train.precision=bf16", "checkpoint.keep=9")
    whole, half = train(DUMMY, *keys), train(DUMMY, *keys, "train.steps=10")
    resumed = train(half.path, "train.steps=20")
    assert losses(resumed) == losses(whole)[10:]


def test_the_micro_batch_is_as_large_as_memory_allows() -> None:
    # A block keeps about 15 MB of an image: all of them together exceed every GPU.
    large = ("model.width=1152", "model.heads=16", "model.depth=4", "data.size=32")
    keys = (*SMALL, *large, "data.images=8192", "train.global_batch=8192", "train.steps=1")
    run = train(DUMMY, *keys, "train.micro_batch=auto", "train.precision=bf16")
    (tuned,) = [record for record in run.records() if record.get("event") == "tuned"]
    assert 1 < tuned["micro_batch"] < 8192
    whole = train(DUMMY, *keys, "train.micro_batch=null", "train.precision=bf16", fails=True)
    assert read_error_note(whole.attempt(1))["reason"] == "oom"
    assert [r["reason"] for r in whole.records() if r.get("event") == "failed"] == ["oom"]


def test_a_profile_names_kernels() -> None:
    run = train(DUMMY, *SMALL, "profile.at=4")
    folder = run.profile / "attempt-001"
    assert "Self CUDA time total" in (folder / "rank-00000.txt").read_text()
