"""Several ranks train one LoRA as one rank would."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from runs.folder import RunFolder
from tests.finetune.conftest import QUICK, TINY, TrainLora, paths
from tests.real_runs import events, losses, opened, torchrun

pytestmark = pytest.mark.xdist_group("flux")


@pytest.fixture(scope="module")
def on_two_ranks(flux: Path, train_lora: TrainLora) -> RunFolder:
    """Return the run of the other tests on two ranks with two microbatches each."""
    changes = ["train.steps=20", "train.micro_batch=1"]
    run = opened(TINY, [*paths(flux), *QUICK, *changes], kind="finetune", gpus=2)
    torchrun(run, ranks=2, engine="finetune")
    return run


def test_two_ranks_learn_the_same_as_one(on_two_ranks: RunFolder, trained: RunFolder) -> None:
    one, two = losses(trained), losses(on_two_ranks)
    assert two == pytest.approx({step: one[step] for step in two}, rel=1e-4)
    name = "step-000000020.safetensors"
    tensors, others = load_file(trained.lora / name), load_file(on_two_ranks.lora / name)
    distance = torch.cat([(tensors[key] - others[key]).flatten() for key in tensors]).norm()
    norm = torch.cat([tensor.flatten() for tensor in tensors.values()]).norm()
    assert distance < 1e-3 * norm


def test_ranks_share_samples_and_evaluation(on_two_ranks: RunFolder, trained: RunFolder) -> None:
    assert events(on_two_ranks) == ["started", "evaluated", "saved", "evaluated", "done"]
    assert all(on_two_ranks.prompt_sample(prompt, 20).is_file() for prompt in range(2))
    gains = [
        [record["validation_gain"] for record in run.records() if "validation_gain" in record][1]
        for run in (trained, on_two_ranks)
    ]
    assert gains[1] == pytest.approx(gains[0], rel=1e-3)
