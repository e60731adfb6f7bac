"""Features that need CUDA: 8-bit moments, an 8-bit base under bf16, memory in the records."""

import pytest

from tests.finetune.conftest import TrainLora
from tests.real_runs import events, losses

pytestmark = [pytest.mark.xdist_group("flux"), pytest.mark.gpu]
EIGHT = ("optimizer.kind=adamw8bit", "resources.gpus_per_node=1", "lora.rank=32")


def test_8_bit_moments_learn_and_resume(train_lora: TrainLora) -> None:
    half = train_lora(*EIGHT, "train.steps=20")
    whole = train_lora("train.steps=40", resumes=half)
    assert events(whole)[-1] == "done"
    assert sorted(losses(whole)) == list(range(1, 41))
    last = [record for record in whole.records() if "validation_gain" in record][-1]
    assert last["validation_gain"] > last["validation_gain_95"]


@pytest.mark.parametrize("kind", ["int8", "float8"])
def test_a_quantised_base_trains_under_bf16(kind: str, train_lora: TrainLora) -> None:
    run = train_lora(f"flux.quantise={kind}", "train.precision=bf16", "resources.gpus_per_node=1")
    last = [record for record in run.records() if "validation_gain" in record][-1]
    assert last["validation_gain"] > last["validation_gain_95"]
    assert all(record["gpu_gb"] > 0 for record in run.records() if "loss" in record)
