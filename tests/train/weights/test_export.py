"""Exported weights are complete, and a new run can start from them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from runs.folder import RunFolder
from tests.real_runs import TINY, losses, trained
from train.__main__ import main

# A learning rate at which a few steps lower the loss.
FAST = ["optimizer.lr=0.003", "optimizer.warmup_steps=0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    logs = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGS", str(logs))
        return trained(logs, [*TINY, *FAST, "train.steps=60", "log.every=1"])


def test_both_kinds_of_weights_can_be_exported_and_differ(run: RunFolder, tmp_path: Path) -> None:
    files = {which: tmp_path / f"{which}.safetensors" for which in ("ema", "model")}
    weights = {}
    for which, file in files.items():
        assert main(["export", str(run.path), str(file), "--weights", which]) == 0
        with safe_open(file, framework="pt") as content:
            weights[which] = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
            metadata = content.metadata()
        assert (metadata["step"], metadata["weights"], metadata["run"]) == ("60", which, run.name)
        assert json.loads(metadata["config"])["model"]["width"] == 32
    assert weights["ema"].keys() == weights["model"].keys()
    assert any(
        not torch.equal(weights["ema"][name], weights["model"][name]) for name in weights["ema"]
    )


def test_a_run_starts_from_exported_weights(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path))
    file = tmp_path / "model.safetensors"
    main(["export", str(run.path), str(file), "--weights", "model"])
    started = trained(
        tmp_path, [*TINY, *FAST, "train.steps=2", "log.every=1", f"model.init_from={file}"]
    )
    assert losses(started)[1] < 0.8 * losses(run)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "{run}", "{tmp}/w.pt"], "ending in .safetensors"),
        (["export", "{run}", "{tmp}/none/w.safetensors"], "in an existing folder"),
        (["export", "{tmp}", "{tmp}/w.safetensors"], "not a run folder"),
    ],
)
def test_misuse_is_refused(
    run: RunFolder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    filled = [argument.format(run=run.path, tmp=tmp_path) for argument in arguments]
    assert main(filled) == 2
    assert message in capsys.readouterr().err
