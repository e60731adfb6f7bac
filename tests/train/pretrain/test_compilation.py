"""`train.compile: auto` compiles on GPUs whose nodes can, and a resumed run keeps what it had."""

from dataclasses import replace

import pytest
import torch

from configs.errors import ConfigError
from configs.load import expect, load
from configs.schema import Pretrain
from runs.folder import RunFolder
from tests.real_runs import DIGITS, opened
from train.engine.distributed import Ranks, read_ranks
from train.model import parallelize
from train.pretrain import train_state
from train.pretrain.train_state import with_compile_resolved


@pytest.fixture
def ranks(group: None) -> Ranks:
    return read_ranks()


@pytest.fixture
def run() -> RunFolder:
    return opened(DIGITS, [])


def resolved(run: RunFolder, ranks: Ranks, *keys: str) -> object:
    config = expect(load(DIGITS, [*keys]), Pretrain, source=DIGITS)
    return with_compile_resolved(run, config, ranks).train.compile


def on_gpu(ranks: Ranks) -> Ranks:
    return replace(ranks, device=torch.device("cuda", 0))


def test_auto_is_eager_on_a_cpu_and_the_user_decides_otherwise(
    run: RunFolder, ranks: Ranks
) -> None:
    assert resolved(run, ranks) is False
    assert resolved(run, ranks, "train.compile=true") is True
    assert resolved(run, on_gpu(ranks), "train.compile=false") is False


@pytest.mark.parametrize("others", [True, False])
def test_auto_compiles_on_gpus_if_every_rank_can(
    others: bool, run: RunFolder, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallelize, "check_compiler", lambda: None)
    monkeypatch.setattr(train_state, "from_every_rank", lambda mine: [mine, others])
    assert resolved(run, on_gpu(ranks)) is others


def test_a_node_without_a_compiler_runs_eagerly_and_says_so(
    run: RunFolder, ranks: Ranks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> None:
        raise ConfigError("train.compile needs a C compiler")

    monkeypatch.setattr(parallelize, "check_compiler", missing)
    monkeypatch.setattr(parallelize.log, "propagate", True)
    assert resolved(run, on_gpu(ranks)) is False
    assert "eagerly: train.compile needs a C compiler" in caplog.text


def test_a_resumed_run_keeps_what_its_first_attempt_had(run: RunFolder, ranks: Ranks) -> None:
    run.note(1, compile=True)
    run.note(2, host="another")
    assert resolved(run, ranks) is True
