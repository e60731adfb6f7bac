"""Every exception has a reason of failure, which decides whether a retry can help."""

import errno

import pytest
import torch

from train.engine.failure import reason_of


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
