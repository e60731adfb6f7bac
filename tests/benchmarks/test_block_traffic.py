"""A compiled block moves no more memory than docs/measurements/block-traffic.md says."""

import pytest
import torch

from benchmarks.block_traffic import traffic

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the compiler warns
    pytest.mark.skipif(
        torch.__version__ < torch.torch_version.TorchVersion("2.15"),
        reason="the count reads the compiler of torch 2.15",
    ),
]


def test_a_compiled_block_moves_at_most_170_bytes_per_token_and_channel() -> None:
    found = traffic("ours").to_json()
    assert 100 < found["sum"] <= 170
    assert found["eager"] == pytest.approx(550, rel=0.02)


@pytest.mark.long
def test_norm_and_rotation_before_the_split_into_heads_save_a_seventh() -> None:
    ours, before = (traffic(name).to_json()["sum"] for name in ("ours", "heads before norm"))
    assert ours / before == pytest.approx(6 / 7, rel=0.02)
