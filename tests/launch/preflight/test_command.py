"""Preflight checks a config, a run or a study: a line for each check, with its fix."""

from collections.abc import Callable
from pathlib import Path

import pytest

from configs.load import load, to_tree
from launch.preflight.check import failure
from launch.preflight.command import show
from runs.folder import ROOT, make_run
from tests.launch.conftest import DIGITS

Launch = Callable[..., tuple[int, str, str]]


def test_a_config_that_can_run_passes_line_by_line_torch_too(
    launch: Launch, slurm: None, site: Path
) -> None:
    site.mkdir()
    code, out, err = launch("preflight", DIGITS, "resources.gpu=a40")
    assert code == 0, out
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert {level for level, *_ in lines} == {"pass"}, out
    topics = [line[6:18].strip() for line in out.splitlines()]
    assert topics == [
        "data", "batch", "site", "cluster", "modules", "virtualenv", "storage",
        "lead time", "gpu memory", "host memory",
    ]  # fmt: skip
    assert err == "10 pass, 0 warn, 0 fail\n"


def test_an_invalid_config_gives_a_single_line(launch: Launch) -> None:
    code, out, _ = launch("preflight", DIGITS, "train.stps=1")
    assert code == 1
    assert out.startswith("fail  config")
    assert "did you mean train.steps?" in out


def test_a_batch_and_a_path_that_do_not_fit_fail(launch: Launch, slurm: None) -> None:
    config = ROOT / "configs" / "pretrain" / "cifar10.yaml"
    data = "data.path=/no/such/folder"
    code, out, _ = launch("preflight", config, data, "resources.nodes=3", "train.global_batch=256")
    assert code == 1
    assert "fail  batch" in out
    assert "fail  data          data.path /no/such/folder: no such folder; create it or name" in out


def test_a_run_is_checked_as_it_would_be_resumed(launch: Launch, slurm: None, site: Path) -> None:
    run = make_run("digits", to_tree(load(DIGITS, [])), identity="1")
    code, out, _ = launch("preflight", run.path, "train.steps=5000")
    assert code == 0, out
    code, out, _ = launch("preflight", run.path, "optimizer.lr=1")
    assert code == 1
    assert "optimizer.lr: cannot change when digits-1 is resumed" in out


def test_a_study_is_checked_cell_by_cell_and_shape_by_shape(
    launch: Launch, slurm: None, site: Path
) -> None:
    site.mkdir()
    grid = ("train.global_batch=64,65,66", "resources.nodes=1,2", "resources.gpu=a40")
    code, out, err = launch("preflight", DIGITS, *grid, "checkpoint.keep=1")
    assert code == 1
    lines = out.splitlines()
    fails = [line for line in lines if line.startswith("fail")]
    assert len(fails) == 1
    assert "train.global_batch 65 does not divide over 2 data ranks" in fails[0]
    assert sum("pass  cluster" in line for line in lines) == 2
    assert sum("lead time" in line for line in lines) == 2
    assert sum("virtualenv" in line for line in lines) == 1
    assert sum("pass  storage" in line for line in lines) == 1
    assert "1 fail" in err


def test_an_invalid_study_gives_a_single_line(launch: Launch) -> None:
    code, out, _ = launch("preflight", DIGITS, "train.stps=1,2")
    assert code == 1
    assert out.count("\n") == 1
    assert out.startswith("fail  config")


def test_a_line_contains_no_terminal_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert show([failure("data", "\x1b[2J\nevil")]) == 1
    assert capsys.readouterr().out == "fail  data          \\x1b[2J evil\n"


def test_a_config_and_a_script_exclude_each_other(launch: Launch) -> None:
    for words in ((), (DIGITS, "--script", "x")):
        with pytest.raises(SystemExit) as end:
            launch("preflight", *words)
        assert end.value.code == 2
