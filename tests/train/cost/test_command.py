"""`python -m train forecast`, as people and `launch submit` call it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from train.forecast.command import main

from configs.errors import ConfigError

CIFAR10 = "configs/pretrain/cifar10.yaml"


def test_the_closed_form_loads_no_torch() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "train", "forecast", CIFAR10]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "train.forecast.estimate" in done.stderr
    assert "torch" not in done.stderr
    assert "a40" in done.stdout


def test_json_has_the_documented_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([CIFAR10, "--gpu", "a40,a100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == 32_477_196
    assert found["gmacs_per_image"] == pytest.approx(sum(found["macs"].values()) / 1e9)
    assert set(found["macs"]) == {"blocks", "attention", "adaln", "edges"}
    assert {name: gpu["type"] for name, gpu in found["gpus"].items()} == {
        "a40": "a40",
        "a100": "a100-80gb-sxm",
    }
    a40 = found["gpus"]["a40"]
    assert a40["fits"] is True
    assert a40["images_per_s"] < found["gpus"]["a100"]["images_per_s"]
    step = a40["step_s"]
    assert 256 / step["value"] == pytest.approx(a40["images_per_s"])
    assert (step["low"], step["high"]) == (step["value"] / 2, 2 * step["value"])
    assert step["source"] == "guess by data sheet"
    assert a40["max_micro_batch"] < found["gpus"]["a100"]["max_micro_batch"]
    kinds = {"parameters", "gradients", "optimizer", "average", "activations", "peak", "total"}
    assert kinds <= set(a40["gib"])


def test_several_configs_make_a_list_and_overrides_apply_to_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [CIFAR10, "configs/pretrain/digits.yaml", "model.depth=2", "--json", "--gpu", "a40"]
    assert main(words) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["config"] == CIFAR10
    assert first["parameters"] < 10e6
    assert second["parameters"] < first["parameters"]


def test_an_invalid_cell_is_named_and_the_others_are_forecast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [
        {"config": CIFAR10, "gpu": "a40", "nodes": 2, "gpus_per_node": 2},
        {"config": CIFAR10, "overrides": ["train.global_batch=7"], "gpus_per_node": 2},
        {"config": CIFAR10, "gpu": ["a40", "p100"]},
        {"config": CIFAR10, "gpus": "a40"},
    ]
    file = tmp_path / "cells.jsonl"
    file.write_text("\n".join(map(json.dumps, cells)))
    assert main(["--cells", str(file), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found[0]["world"] == 4
    assert found[0]["gpus"]["a40"]["micro_batch"] == 64
    assert "does not divide over 2" in found[1]["error"]
    assert "p100" in found[2]["error"]
    assert "gpus: 'a40' is not valid in a cell" in found[3]["error"]


def test_a_config_that_does_not_fit_exits_with_1_and_names_a_fix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [CIFAR10, "model.width=2560", "model.depth=60", "model.heads=64", "--gpu", "a100"]
    assert main(words) == 1
    output = capsys.readouterr().out
    assert "does not fit: not even one image fits into 79 GiB" in output
    assert "layout.shard=" in output


def test_a_gpu_without_the_precision_is_no_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([CIFAR10, "--gpu", "v100"]) == 1
    assert "no arithmetic for train.precision bf16" in capsys.readouterr().out
    assert main([CIFAR10, "train.precision=fp16", "--gpu", "v100"]) == 0


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ([CIFAR10, "--gpu", "p100"], "known: a40"),
        ([], "expected a CONFIG"),
        ([CIFAR10, "--cells", "x"], "expected a CONFIG"),
        (["--cells", "nowhere.jsonl"], "cannot be read"),
        ([CIFAR10, "model.family=unet"], "add --exact"),
    ],
)
def test_misuse_is_refused_with_the_fix(words: list[str], fix: str) -> None:
    with pytest.raises(ConfigError, match=fix):
        main(words)


def test_exact_adds_a_dry_run_to_the_closed_form(capsys: pytest.CaptureFixture[str]) -> None:
    words = [CIFAR10, "model.depth=2", "train.compile=false", "train.global_batch=16"]
    assert main([*words, "--gpu", "a40", "--exact", "--json"]) == 0
    a40 = json.loads(capsys.readouterr().out)["gpus"]["a40"]
    assert a40["exact_gib"]["peak"] == pytest.approx(a40["gib"]["peak"], rel=0.05)


def test_a_unet_is_forecast_by_dry_runs(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("model.unet.width=32", "model.unet.layers=1")
    words = [CIFAR10, "model.family=unet", *small, "train.compile=false"]
    assert main([*words, "train.global_batch=16", "--gpu", "a40", "--exact", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["macs"].keys() == {"convolutions", "rest"}
    a40 = found["gpus"]["a40"]
    assert a40["fits"]
    assert a40["max_micro_batch"] > 16
    # The line through two dry runs, compared with a third at 16 images.
    assert a40["exact_gib"]["peak"] == pytest.approx(a40["gib"]["peak"], rel=0.03)
