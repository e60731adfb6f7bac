"""Every exception has a reason of failure, which decides whether a retry can help."""

import errno
import json
import shutil
import textwrap
from pathlib import Path

import pytest
import torch

from configs.schema import Pretrain
from runs.attempt.open import open_attempt
from runs.folder import RunFolder
from tests.real_runs import DIGITS, opened, two_ranks
from train.engine.attempt import Attempt, run_attempt
from train.engine.failure import reason_of, write_error
from train.engine.metrics import log


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: uncorrectable ECC error encountered\nCompile with `TORCH_USE_CUDA_DSA`",
        "CUDA error: unspecified launch failure",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "No CUDA GPUs: no CUDA-capable device is detected",
        "Unexpected error from cudaGetDeviceCount(): system not yet initialized",
    ],
)
@pytest.mark.parametrize("kind", [RuntimeError, torch.distributed.DistBackendError])
def test_a_broken_gpu_is_a_node_failure(message: str, kind: type[RuntimeError]) -> None:
    assert reason_of(kind(message)) == "node"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "crash"),
        (RuntimeError("CUDA error: device-side assert triggered"), "crash"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "oom"),
        (torch.distributed.DistNetworkError("Connection reset by peer"), "nccl"),
        (torch.AcceleratorError("CUDA error: out of memory"), "oom"),
        (RuntimeError("CUDA driver error: out of memory"), "oom"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), "oom"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "oom"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), "oom"),
        (torch.distributed.DistBackendError("Cuda failure 2 'out of memory'"), "oom"),
        (torch.distributed.DistBackendError("Cuda failure 217 'peer access'"), "nccl"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), "host_oom"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error."), "host_oom"),
        (RuntimeError("unable to allocate shared memory(shm) for file </t>: No space"), "host_oom"),
        (RuntimeError("CUDA error: no kernel image is available for execution on it"), "config"),
        (RuntimeError("The NVIDIA driver on your system is too old (found 12040)."), "config"),
        (MemoryError(), "host_oom"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "disk"),
        (ValueError("no CUDA-capable device is detected"), "crash"),
    ],
    ids=str,
)
def test_faults_of_the_run_are_not(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_an_exception_without_a_reason_of_its_own_has_that_of_its_cause() -> None:
    error = RuntimeError("the save failed")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert reason_of(error) == "disk"


def test_a_run_that_was_removed_while_it_ran_is_said_to_be_gone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    attempt = open_attempt(Path("configs/pretrain/digits.yaml"), [])
    run = RunFolder(attempt.parent.parent)

    def work(attempt: Attempt[Pretrain]) -> None:
        shutil.rmtree(run.path)
        run.checkpoints.mkdir()

    assert run_attempt(run, work, number=1) == 1
    said = "".join(capfd.readouterr())
    assert f"{run.path}: the folder of the run is gone" in said
    assert "Traceback" not in said


def test_a_rank_that_fails_is_the_cause_though_its_group_cannot_end(tmp_path: Path) -> None:
    run = opened(DIGITS, [])
    script = tmp_path / "rank.py"
    # NCCL ends a group only when its collectives have finished.
    script.write_text(
        textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        import torch
        import torch.distributed as dist
        from runs.folder import RunFolder
        from train.engine.attempt import run_attempt
        from train.engine.distributed import end_rank, process_group

        def work(attempt):
            dist.destroy_process_group = lambda: time.sleep(300)
            with process_group(attempt.ranks):
                if attempt.ranks.rank == 1:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                dist.barrier()

        sys.exit(end_rank(run_attempt(RunFolder(Path("{run.path}")), work, number=1)))
        """)
    )
    done = two_ranks(str(script), timeout_s=120)
    assert done.returncode == 1
    note = json.loads((run.attempt(1) / "error.json").read_text())
    assert (note["reason"], note["rank"]) == ("oom", 1)
    assert "rank 1 failed" in (run.attempt(1) / "ranks" / "rank-00001.log").read_text()


def test_a_rank_that_finds_no_placement_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(DIGITS, [])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert run_attempt(run, lambda _: None, number=1) == 1
    assert "has no GPU" in json.loads((run.attempt(1) / "error.json").read_text())["message"]


@pytest.mark.parametrize(
    ("error", "said"),
    [(torch.OutOfMemoryError("CUDA out of memory"), True), (MemoryError(), False)],
)
def test_the_use_of_a_full_gpu_is_logged_after_the_error_is_written(
    error: Exception,
    said: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def summary() -> str:
        assert (tmp_path / "error.json").exists()
        return "allocated 79 GiB"

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_summary", summary)
    monkeypatch.setattr(log, "propagate", True)
    write_error(tmp_path, error, rank=0)
    assert ("allocated 79 GiB" in caplog.text) == said
