"""Logs of GPUs are read as far as they are whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from runs.gpu_log import read_gpu_logs

FACTS = json.dumps({"time": 0, "gpus": [{"max_sm_mhz": 1410}, {}]}) + "\n"


def row(gpu: int, time: float, **fields: Any) -> str:
    return json.dumps({"time": time, "span_s": 10.0, "gpu": gpu} | fields) + "\n"


@pytest.fixture
def write(tmp_path: Path):
    def write(*lines: str, node: str = "n1") -> Path:
        (tmp_path / "gpu").mkdir(exist_ok=True)
        (tmp_path / "gpu" / f"{node}.jsonl").write_text("".join(lines))
        return tmp_path

    return write


def test_torn_lines_and_odd_values_are_skipped(write) -> None:
    odd = ['{"time": 1, "sp\n', "[1]\n", row(2, 1), '{"time": 1, "gpu": 0}\n', "5\n"]
    lines = [FACTS, *odd, row(0, 10, busy="x", power_w=3.0), row(1, 10), row(0, 20)[:-9]]
    first, second = read_gpu_logs(write(*lines))
    assert first.rows == [{"time": 10, "span_s": 10.0, "gpu": 0, "power_w": 3.0}]
    assert first.facts == {"max_sm_mhz": 1410}
    assert len(second.rows) == 1


@pytest.mark.parametrize(("others", "why"), [([0, 0, 1], ""), ([0, 1, 1], "shared")])
def test_a_card_is_shared_if_other_processes_stay(others, why, write) -> None:
    rows = [row(0, n, others=count) for n, count in enumerate(others)]
    assert read_gpu_logs(write(FACTS, *rows))[0].whole_card == why
