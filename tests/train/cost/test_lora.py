"""The forecast of a LoRA agrees with a step that is followed storage by storage."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lora_step import GIB, Setting, StepCount, count
from configs.checks.batch import divide
from configs.gpus import Gpu
from configs.load import load
from configs.schema import Finetune
from train.forecast.command import main
from train.forecast.lora import LoraForecast
from train.forecast.roofline import ATTENTION_SLOWDOWN, COPY_EFFICIENCY

CONFIG = Path("configs/finetune/flux-schnell-500.yaml")
GRID = [
    Setting(size=size, images=images, checkpointing=again, rank=rank, blocks=2, single_blocks=3)
    for (size, images), again, rank in itertools.product(
        ((512, 1), (1024, 3)), (True, False), (16, 64)
    )
]


def forecast(setting: Setting, folder: Path) -> LoraForecast:
    sizes = {"num_layers": setting.blocks, "num_single_layers": setting.single_blocks}
    (folder / "transformer").mkdir()
    (folder / "transformer" / "config.json").write_text(json.dumps(sizes))
    overrides = {
        "flux.folder": folder,
        "flux.text_tokens": setting.text_tokens,
        "data.resolutions": [setting.size],
        "lora.rank": setting.rank,
        "train.global_batch": setting.images,
        "train.gradient_checkpointing": str(setting.checkpointing).lower(),
        "sample.width": 16,
        "sample.height": 16,
    }
    config = load(CONFIG, [f"{name}={value}" for name, value in overrides.items()])
    assert isinstance(config, Finetune)
    return LoraForecast(config, divide(config, world=1))


def compare(setting: Setting, folder: Path) -> None:
    found, counted = forecast(setting, folder), count(setting)
    vae_gib = 2 * 83_819_683 / GIB
    assert found.gib()["base"] - vae_gib == pytest.approx(counted.base / GIB, rel=0.001)
    assert found.gib()["step"] - vae_gib == pytest.approx(counted.peak / GIB, rel=0.05)
    gpu = {"names": ["x"], "memory_gb": 1.0, "matmul_share": 1.0, "peak_tflops": {}}
    endless: Any = {"bf16": 1e20, "fp16": 1e20, "fp32": 1e20}
    slow_copies = Gpu(**gpu | {"bandwidth_gb_s": 1.0, "peak_tflops": endless})
    slow_products = Gpu(**gpu | {"bandwidth_gb_s": 1e20, "peak_tflops": dict.fromkeys(endless, 1)})
    moved, products, attention = parts(counted)
    assert seconds(found, slow_copies) * 1e9 * COPY_EFFICIENCY == pytest.approx(moved, rel=0.1)
    expected = products + ATTENTION_SLOWDOWN * attention
    assert seconds(found, slow_products) * 1e12 == pytest.approx(expected, rel=0.03)


def seconds(found: LoraForecast, gpu: Gpu) -> float:
    known = found.seconds(gpu)
    assert known is not None
    return float(known["step_s"]["value"])


def parts(counted: StepCount) -> tuple[float, float, float]:
    """Return bytes beside products and attention, FLOPs of products and those of attention."""
    moved = products = attention = 0.0
    for name, part in counted.operations.items():
        if "attention" in name:
            attention += part.flops
        elif name in ("mm", "addmm"):
            products += part.flops
        else:
            moved += part.bytes
    return moved, products, attention


def test_memory_and_traffic_are_those_of_a_step(tmp_path: Path) -> None:
    compare(Setting(size=512, images=2, blocks=2, single_blocks=1), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("setting", GRID, ids=str)
def test_memory_is_within_5_percent_in_8_combinations(setting: Setting, tmp_path: Path) -> None:
    compare(setting, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("checkpointing", [False, True])
def test_memory_of_a_flux_of_true_size_is_within_5_percent(
    *, checkpointing: bool, tmp_path: Path
) -> None:
    compare(Setting(size=1024, checkpointing=checkpointing), tmp_path)


def test_the_command_answers_for_a_lora(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CONFIG), "--gpu", "a100-40gb", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    gpu = found["gpus"]["a100-40gb"]
    assert found["parameters"] == 65_372_160
    assert 25 < gpu["gib"]["peak"] < 26
    assert gpu["fits"]
    assert 0.5 < gpu["step_s"]["value"] < 1.5
    assert gpu["hours"] > 500 * gpu["step_s"]["value"] / 3600
    assert main([str(CONFIG), "--gpu", "a100-40gb"]) == 0
    assert "65.4 M parameters of a LoRA" in capsys.readouterr().out


def test_a_gpu_that_is_too_small_gets_the_keys_that_would_make_it_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    large = [str(CONFIG), "train.gradient_checkpointing=false"]
    assert main([*large, "--gpu", "a100-40gb"]) == 1
    assert "would fit: train.gradient_checkpointing=true" in capsys.readouterr().out
    assert main([str(CONFIG), "data.resolutions=[512]", "--gpu", "v100-32gb-sxm"]) == 1
    assert "no arithmetic for train.precision bf16" in capsys.readouterr().out


def test_the_largest_size_decides_over_memory_and_all_over_the_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {}
    for sizes in ("[512]", "[1024]", "[512,1024]"):
        main([str(CONFIG), f"data.resolutions={sizes}", "--gpu", "h100-sxm", "--json"])
        found[sizes] = json.loads(capsys.readouterr().out)["gpus"]["h100-sxm"]
    assert found["[512,1024]"]["gib"] == found["[1024]"]["gib"] != found["[512]"]["gib"]
    steps = {sizes: gpu["step_s"]["value"] for sizes, gpu in found.items()}
    assert steps["[512,1024]"] == pytest.approx((steps["[512]"] + steps["[1024]"]) / 2)
