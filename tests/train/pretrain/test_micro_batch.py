"""`train.micro_batch: auto` takes the largest micro batch that fits by the cost of a step."""

from pathlib import Path

import pytest
import torch

from configs.checks.batch import divide
from configs.schema import Pretrain
from runs.folder import RunFolder
from tests.real_runs import DIGITS, opened
from train.cost.estimate import total_bytes
from train.cost.memory import GIB, pretrain_memory
from train.engine.distributed import Ranks
from train.engine.failure import RunFailure
from train.pretrain import micro_batch
from train.pretrain.micro_batch import MARGIN, tuned_micro_batch

SMALL = [
    "model.width=32", "model.depth=1", "model.heads=2", "train.compile=false", "data.size=64",
    "data.channels=16", "data.source=dummy", "data.held_out=0", "model.patch=16",
    "train.global_batch=512", "train.micro_batch=auto", "train.steps=1",
]  # fmt: skip
ALONE = Ranks(rank=0, world=1, local_rank=0, local_world=1, device=torch.device("cpu"))


@pytest.fixture
def run() -> RunFolder:
    return opened(DIGITS, SMALL)


def config_of(run: RunFolder, attempt: int = 1) -> Pretrain:
    return run.config(attempt)


def set_memory(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    monkeypatch.setattr(micro_batch, "memory_bytes", lambda _: size)


def test_it_is_the_largest_divisor_whose_cost_fits(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = 1.0 * GIB
    set_memory(monkeypatch, memory)
    micro = tuned_micro_batch(run, config_of(run), ALONE, 1)
    assert micro
    assert 512 % micro == 0
    totals = []
    for size in (micro, 2 * micro):
        layout = divide(config_of(run), world=1, tuned=size)
        totals.append(total_bytes(pretrain_memory(config_of(run), layout), layout))
    assert totals[0] <= (1 - MARGIN) * memory < totals[1]
    assert list(run.records())[-1]["micro_batch"] == micro


def test_a_fixed_micro_batch_is_not_tuned(run: RunFolder) -> None:
    train = config_of(run).train.model_copy(update={"micro_batch": 8})
    config = config_of(run).model_copy(update={"train": train})
    assert tuned_micro_batch(run, config, ALONE, 1) is None
    assert all(record.get("event") != "tuned" for record in run.records())


def test_if_not_one_image_fits_the_run_fails_with_oom_and_a_fix(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_memory(monkeypatch, 0.1 * GIB)
    with pytest.raises(RunFailure, match=r"layout\.shard") as failure:
        tuned_micro_batch(run, config_of(run), ALONE, 1)
    assert failure.value.reason == "host_oom"


def test_a_count_that_fails_ends_the_run_with_its_last_lines(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/bash\necho no torch here >&2; exit 3\n")
    script.chmod(0o700)
    monkeypatch.setattr("train.pretrain.micro_batch.sys.executable", str(script))
    with pytest.raises(RunFailure, match="no torch here"):
        tuned_micro_batch(run, config_of(run), ALONE, 1)


def test_the_memory_of_a_rank_is_known() -> None:
    assert 0 < micro_batch.memory_bytes(ALONE) < 2**50
