"""`plan` checks a config, a run or a study: a line for each check, with its fix."""

import re
from pathlib import Path

import pytest

from configs.load import load, to_tree
from launch.plan.command import _shown
from launch.plan.result import failure
from runs.folder import ROOT, make_run
from tests.launch.conftest import DIGITS, Launch


def test_a_config_that_can_run_passes_line_by_line(launch: Launch, slurm: None, site: Path) -> None:
    site.mkdir()
    code, out, err = launch("plan", DIGITS, "resources.gpu=a40")
    assert code == 0, out
    sections = re.split(r"\n\n(?=does it fit|1 run|what is submitted)", out)
    title, *lines = sections[0].splitlines()
    assert title == "checks"
    assert sections[1].startswith("does it fit?\nGPU  GiB  of  ")
    assert sections[2] == "1 run, at most 4 GPU-hours"
    assert sections[3].startswith("what is submitted\n#!/bin/bash\n")
    assert [line.split()[0] for line in lines] == ["pass", "pass", "warn", "pass", "pass"], out
    topics = [line[6:18].strip() for line in lines]
    assert topics == [
        "data", "batch", "site", "cluster", "gpu memory",
    ]  # fmt: skip
    # Before it, the counting of memory may say how far it is.
    assert "\n4 pass, 1 warn, 0 fail\n" in f"\n{err}"


def test_an_invalid_config_gives_a_single_line(launch: Launch) -> None:
    code, out, err = launch("plan", DIGITS, "train.stps=1")
    assert (code, out) == (2, "")
    assert "did you mean train.steps?" in err


def test_a_batch_and_a_path_that_do_not_fit_fail(launch: Launch, slurm: None) -> None:
    config = ROOT / "configs" / "pretrain" / "cifar10.yaml"
    data = "data.path=/no/such/folder"
    code, out, _ = launch("plan", config, data, "resources.nodes=3", "train.global_batch=256")
    assert code == 1
    assert "fail  batch" in out
    assert "fail  data          data.path /no/such/folder: no such folder; create it or name" in out


def test_a_run_is_checked_as_it_would_be_resumed(launch: Launch, slurm: None, site: Path) -> None:
    run = make_run("digits", to_tree(load(DIGITS, [])), identity="1")
    code, out, _ = launch("plan", run.path, "train.steps=5000")
    assert code == 0, out
    code, _, err = launch("plan", run.path, "optimizer.lr=1")
    assert code == 2
    assert "optimizer.lr: cannot change when digits-1 is resumed" in err


def test_a_study_is_checked_cell_by_cell_and_shape_by_shape(
    launch: Launch, slurm: None, site: Path
) -> None:
    site.mkdir()
    grid = ("train.global_batch=64,65,66", "resources.nodes=1,2", "resources.gpu=a40")
    code, out, err = launch("plan", DIGITS, *grid, "checkpoint.keep=1")
    assert code == 1
    lines = out.splitlines()
    fails = [line for line in lines if line.startswith("fail")]
    assert len(fails) == 1
    assert "train.global_batch 65 does not divide over 2 data ranks" in fails[0]
    assert sum("pass  cluster" in line for line in lines) == 2
    assert sum("gpu memory" in line for line in lines) == 2
    assert "1 fail" in err


def test_a_line_contains_no_terminal_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert [*_shown([failure("data", "\x1b[2J\nevil")])]
    assert capsys.readouterr().out == "fail  data          \\x1b[2J evil\n"
