"""`python -m train cost`, as `ditbench plan` asks it."""

import io
import itertools
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from configs.checks.batch import divide
from configs.gpus import named_gpu
from configs.load import load, to_tree
from train.cost.command import main
from train.cost.estimate import total_bytes
from train.cost.measure import main as measure
from train.cost.memory import pretrain_memory
from train.cost.step_time import MeasuredStep, keep_measured, measured

DIGITS = "configs/pretrain/digits.yaml"
EAGER = "train.compile=false"
A40 = "resources.gpu=a40"
# So many images of 12 blocks fit an A40 only in part.
LARGE = [
    "resources.gpus_per_node=1", "train.micro_batch=null", "train.global_batch=4096",
    "gns.enabled=false",
]  # fmt: skip

Answers = list[dict[str, Any]]


def cell(*overrides: str, config: str = DIGITS) -> dict[str, Any]:
    return to_tree(load(Path(config), [EAGER, *overrides]))


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the answers to cells."""

    def answers(*cells: dict[str, Any]) -> Answers:
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, cells))))
        assert main([]) == 0
        found: Answers = json.loads(capsys.readouterr().out)
        return found

    return answers


def children_s() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def test_a_second_answer_about_400_cells_takes_a_second_and_no_torch(ask: Any) -> None:
    ask(cell(A40))
    keys = itertools.product(range(10), range(4, 12, 2), range(1, 11))
    cells = [
        cell(A40, f"seed={seed}", f"model.depth={depth}", f"train.global_batch={64 * batch}")
        for seed, depth, batch in keys
    ]
    command, before = [sys.executable, "-X", "importtime", "-m", "train", "cost"], children_s()
    text = "\n".join(map(json.dumps, cells))
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert len(json.loads(done.stdout)) == len(cells) == 400
    assert "torch" not in done.stderr
    assert "train.cost.estimate" in done.stderr
    # Of CPU; a second where 400 configs are resolved as fast as on a quiet machine.
    assert children_s() - before < 10


def test_an_answer_has_the_documented_keys(ask: Any) -> None:
    (found,) = ask(cell())
    assert found["parameters"] > 100_000
    a40, a100 = (found["gpus"][name] for name in ("a40", "a100-80gb-sxm"))
    assert a40["fits"]
    step = a40["step_s"]
    assert (step["low"], step["high"]) == (step["value"] / 2, 2 * step["value"])
    assert step["source"] == "guess: 35% of peak"
    assert a40["max_micro_batch"] == a100["max_micro_batch"] == 64
    kinds = {"parameters", "gradients", "optimizer", "average", "activations", "peak", "total"}
    assert kinds <= set(a40["gib"])
    (family,) = ask(cell("resources.gpu=a100"))
    assert list(family["gpus"]) == ["a100"]


def test_a_measured_step_replaces_the_guess_for_any_number_of_microbatches(ask: Any) -> None:
    words = ["resources.gpu=a100", "train.micro_batch=16"]
    config = load(Path(DIGITS), [EAGER, *words])
    found = MeasuredStep(once_s=0.5, microbatch_s=0.3, spread=0.01, steps=20)
    keep_measured(config, divide(config, world=1), found, gpu="a100")
    for batch, seconds in ((16, 0.5), (64, 0.5 + 3 * 0.3)):
        (one,) = ask(cell(*words, f"train.global_batch={batch}"))
        step = one["gpus"]["a100"]["step_s"]
        assert step["value"] == pytest.approx(seconds)
        assert step["source"] == "measured in 20 steps"
    others = ask(cell(words[0], "train.micro_batch=8"), cell(A40, words[1]))
    for one in others:
        (gpu,) = one["gpus"].values()
        assert gpu["step_s"]["source"].startswith("guess")


def test_steps_are_measured_and_kept(
    ask: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    words = [EAGER, "train.global_batch=8", "resources.gpus_per_node=1"]
    assert measure([DIGITS, *words, "--seconds=0.2"]) == 0
    assert "cpu: " in capsys.readouterr().out
    config = load(Path(DIGITS), words)
    found = measured(config, divide(config, world=1), gpu="cpu")
    assert found is not None
    assert found.once_s > 0
    assert found.steps >= 2


def test_an_invalid_cell_has_its_error_and_the_others_are_answered(ask: Any) -> None:
    found = ask(
        cell(A40, "resources.nodes=2", "resources.gpus_per_node=2"),
        cell("train.global_batch=7", "resources.gpus_per_node=2"),
        cell("resources.gpu=p100"),
    )
    assert found[0]["world"] == 4
    assert found[0]["gpus"]["a40"]["micro_batch"] == 16
    assert "does not divide over 2" in found[1]["error"]
    assert "p100" in found[2]["error"]
    assert "known: a40" in found[2]["error"]


def test_a_micro_batch_that_does_not_fit_gets_the_largest_that_does(ask: Any) -> None:
    source = "configs/pretrain/dit-s2.yaml"
    (found,) = ask(cell(A40, *LARGE, config=source))
    a40 = found["gpus"]["a40"]
    assert not a40["fits"]
    assert a40["reason"].startswith("micro batch 4096 takes")
    micro = int(a40["fix"].removeprefix("train.micro_batch="))
    capacity, totals = named_gpu("a40").memory_gb * 1e9, []
    for size in (micro, 2 * micro):
        config = load(Path(source), [EAGER, *LARGE, f"train.micro_batch={size}"])
        layout = divide(config, world=1)
        totals.append(total_bytes(pretrain_memory(config, layout), layout))
    assert totals[0] <= capacity < totals[1]
    fixed, auto = ask(
        cell(A40, *LARGE, a40["fix"], config=source),
        cell(A40, *LARGE, "train.micro_batch=auto", config=source),
    )
    assert fixed["gpus"]["a40"]["fits"]
    assert auto["gpus"]["a40"]["micro_batch"] == micro


def test_a_run_of_which_no_image_fits_gets_advice(ask: Any) -> None:
    keys = ["resources.gpu=a100", "model.width=8192", "model.depth=48", "model.heads=64"]
    (found,) = ask(cell(*keys, config="configs/pretrain/dummy-latents.yaml"))
    a100 = found["gpus"]["a100"]
    assert not a100["fits"]
    assert a100["max_micro_batch"] == 0
    assert a100["step_s"] is None
    assert "not even one image fits into 79 GiB" in a100["reason"]
    assert a100["fix"].startswith("a larger layout.shard")


def test_a_gpu_without_the_precision_is_no_fit(ask: Any) -> None:
    (bf16,) = ask(cell("train.precision=bf16", "resources.gpu=v100"))
    assert "no arithmetic for train.precision bf16" in bf16["gpus"]["v100"]["reason"]
    (fp32,) = ask(cell("train.precision=fp32", "resources.gpu=v100"))
    assert fp32["gpus"]["v100"]["fits"]
