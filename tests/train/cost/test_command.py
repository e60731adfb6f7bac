"""`python -m train cost`, as people and `ditbench plan` call it."""

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.gpus import named_gpu
from configs.load import load
from configs.schema import Pretrain
from train.cost.command import main
from train.cost.estimate import total_bytes
from train.cost.memory import pretrain_memory
from train.cost.step_time import MeasuredStep, keep_measured

DIGITS = "configs/pretrain/digits.yaml"
EAGER = "train.compile=false"
# Many images of 12 blocks: they fit an A40 only in part.
LARGE = [
    "configs/pretrain/dit-s2.yaml",
    EAGER,
    "resources.gpus_per_node=1",
    "train.micro_batch=null",
    "train.global_batch=4096",
]


def answer(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    main([*words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    gpus: dict[str, dict[str, Any]] = found["gpus"]
    return gpus


def test_a_second_answer_takes_a_second_and_no_torch() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "train", "cost", DIGITS, EAGER]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    begun = time.process_time()
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert time.process_time() - begun < 1
    assert second.returncode == 0, second.stderr
    assert first.stdout == second.stdout
    assert "a40" in second.stdout
    assert "torch" not in second.stderr
    assert "train.cost.estimate" in second.stderr


def test_400_cells_of_a_known_network_take_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([DIGITS, EAGER, "--gpu", "a40"])
    capsys.readouterr()
    keys = itertools.product(range(10), range(4, 12, 2), range(1, 11))
    cells = [
        {
            "config": DIGITS,
            "gpu": "a40",
            "overrides": [EAGER, f"seed={seed}", f"model.depth={depth}",
                          f"train.global_batch={64 * batch}"],
        }
        for seed, depth, batch in keys
    ]  # fmt: skip
    file = tmp_path / "cells.jsonl"
    file.write_text("\n".join(map(json.dumps, cells)))
    begun = time.process_time()
    assert main(["--cells", str(file), "--json"]) == 0
    assert time.process_time() - begun < 60
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 400


def test_json_has_the_documented_keys(capsys: pytest.CaptureFixture[str]) -> None:
    main([DIGITS, EAGER, "--gpu", "a40,a100", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] > 100_000
    assert found["tflop_per_image"] > 0
    assert {name: gpu["type"] for name, gpu in found["gpus"].items()} == {
        "a40": "a40",
        "a100": "a100-80gb-sxm",
    }
    a40 = found["gpus"]["a40"]
    assert a40["fits"] is True
    step = a40["step_s"]
    assert 64 / step["value"] == pytest.approx(a40["images_per_s"])
    assert (step["low"], step["high"]) == (step["value"] / 2, 2 * step["value"])
    assert step["source"] == "guess: 35% of the peak"
    assert a40["max_micro_batch"] < found["gpus"]["a100"]["max_micro_batch"]
    kinds = {"parameters", "gradients", "optimizer", "average", "activations", "peak", "total"}
    assert kinds <= set(a40["gib"])


def test_a_measured_step_replaces_the_guess_for_any_number_of_microbatches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [DIGITS, EAGER, "model.width=96", "train.micro_batch=16"]
    config = load(Path(DIGITS), words[1:])
    assert isinstance(config, Pretrain)
    layout = divide(config, world=1)
    found = MeasuredStep(once_s=0.5, microbatch_s=0.3, spread=0.01, steps=20)
    keep_measured(config, layout, found, gpu="a100")
    for batch, seconds in ((16, 0.5), (64, 0.5 + 3 * 0.3)):
        gpus = answer([*words, f"train.global_batch={batch}", "--gpu", "a100,a40"], capsys)
        assert gpus["a100"]["step_s"]["value"] == pytest.approx(seconds)
        assert gpus["a100"]["step_s"]["source"] == "measured in 20 steps"
        assert gpus["a40"]["step_s"]["source"].startswith("guess")
    other = answer([*words, "train.micro_batch=8", "--gpu", "a100"], capsys)
    assert other["a100"]["step_s"]["source"].startswith("guess")


def test_an_invalid_cell_is_named_and_the_others_are_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [
        {"config": DIGITS, "overrides": [EAGER], "gpu": "a40", "nodes": 2, "gpus_per_node": 2},
        {"config": DIGITS, "overrides": ["train.global_batch=7"], "gpus_per_node": 2},
        {"config": DIGITS, "gpu": ["a40", "p100"]},
        {"config": DIGITS, "gpus": "a40"},
    ]
    file = tmp_path / "cells.jsonl"
    file.write_text("\n".join(map(json.dumps, cells)))
    assert main(["--cells", str(file), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found[0]["world"] == 4
    assert found[0]["gpus"]["a40"]["micro_batch"] == 16
    assert "does not divide over 2" in found[1]["error"]
    assert "p100" in found[2]["error"]
    assert "gpus: 'a40' is not valid in a cell" in found[3]["error"]


def test_a_micro_batch_that_does_not_fit_gets_the_largest_that_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a40 = answer([*LARGE, "--gpu", "a40"], capsys)["a40"]
    assert not a40["fits"]
    assert a40["reason"].startswith("micro batch 4096 takes")
    micro = int(a40["fix"].removeprefix("train.micro_batch="))
    capacity = named_gpu("a40")[1].memory_gb * 1e9
    totals = []
    for size in (micro, 2 * micro):
        config = load(Path(LARGE[0]), [*LARGE[1:], f"train.micro_batch={size}"])
        assert isinstance(config, Pretrain)
        layout = divide(config, world=1)
        totals.append(total_bytes(pretrain_memory(config, layout), layout))
    assert totals[0] <= capacity < totals[1]
    fixed = answer([*LARGE, a40["fix"], "--gpu", "a40"], capsys)["a40"]
    auto = answer([*LARGE, "train.micro_batch=auto", "--gpu", "a40"], capsys)["a40"]
    assert fixed["fits"]
    assert auto["micro_batch"] == micro


@pytest.mark.long
def test_7b_under_ddp_does_not_fit_80_gb_and_the_fix_makes_it_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["configs/pretrain/dit-7b.yaml", EAGER, "--gpu", "a100"]
    found = answer([*words, "layout.shard=1", "resources.gpus_per_node=8"], capsys)["a100"]
    assert not found["fits"]
    assert found["max_micro_batch"] == 0
    assert found["images_per_s"] is None
    assert "not even one image fits into 79 GiB" in found["reason"]
    assert found["fix"] == "train.micro_batch=1 layout.shard=8"
    assert answer([*words, *found["fix"].split()], capsys)["a100"]["fits"]


def test_a_gpu_without_the_precision_is_no_fit(capsys: pytest.CaptureFixture[str]) -> None:
    small = [DIGITS, EAGER, "train.precision=bf16", "--gpu", "v100"]
    assert main(small) == 1
    assert "no arithmetic for train.precision bf16" in capsys.readouterr().out
    assert main([*small, "train.precision=fp16"]) == 0


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ([DIGITS, "--gpu", "p100"], "known: a40"),
        ([], "expected a CONFIG"),
        ([DIGITS, "--cells", "x"], "expected a CONFIG"),
        (["--cells", "nowhere.jsonl"], "cannot be read"),
    ],
)
def test_misuse_is_refused_with_the_fix(words: list[str], fix: str) -> None:
    with pytest.raises(ConfigError, match=fix):
        main(words)
