"""The native engine on a GPU."""

import pytest

from tests.finetune.conftest import TrainLora
from tests.real_runs import events, losses

pytestmark = [pytest.mark.xdist_group("flux"), pytest.mark.gpu]
GPU = ("resources.gpus_per_node=1", "lora.rank=32")


def test_a_lora_learns_and_resumes_on_a_gpu(train_lora: TrainLora) -> None:
    half = train_lora(*GPU, "train.steps=20")
    whole = train_lora("train.steps=40", resumes=half)
    assert events(whole)[-1] == "done"
    assert sorted(losses(whole)) == list(range(1, 41))
    last = [record for record in whole.records() if "validation_gain" in record][-1]
    assert last["validation_gain"] > last["validation_gain_95"]
    assert all(record["gpu_gb"] > 0 for record in whole.records() if "loss" in record)
