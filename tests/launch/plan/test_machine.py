"""Site, virtualenv, modules, partition and compute node are asked before a job."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.load import merge, parse_overrides, read_tree, resolve
from launch.plan import machine
from launch.plan.checks import run_checks
from launch.plan.forecast import ForecastAnswer
from tests.launch.conftest import DIGITS
from tests.launch.plan.conftest import SINFO, subject

Launch = Callable[..., tuple[int, str, str]]
Command = Callable[[str, str], Path]


def test_a_request_that_the_cluster_refuses_fails_with_a_fix(
    launch: Launch, command: Command
) -> None:
    command("sbatch", "echo 'sbatch: error: invalid gres' >&2; exit 1")
    command("sinfo", SINFO)
    code, out, _ = launch("plan", DIGITS, "resources.hours=72")
    assert code == 1
    assert "fail  cluster       partition gpu allows 48:00:00, not 72:00:00: lower" in out
    out = launch("plan", DIGITS)[1]
    assert "fail  cluster       sbatch refuses --nodes=1 --gpus-per-node=1" in out
    assert "change resources.gpu" in out


def test_without_slurm_the_cluster_check_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_checks(subject(), ForecastAnswer())
    next(line for line in found if line.topic == "site")
    monkeypatch.setenv("PATH", "/nowhere")
    line = next(found)
    assert (line.topic, line.level, line.message) == ("cluster", "warn", "Slurm not found")


def test_a_broken_site_fails(
    launch: Launch, slurm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("VENV", str(tmp_path))
    out = launch("plan", DIGITS)[1]
    assert f"fail  site          no virtualenv in {tmp_path}; create it with env/create.sh" in out


def test_a_virtualenv_without_torch_fails(
    launch: Launch, slurm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    (folder / "activate").write_text(f'PATH="{folder}:$PATH"\n')
    monkeypatch.setenv("VENV", str(tmp_path))
    out = launch("plan", DIGITS)[1]
    assert "fail  virtualenv    torch cannot be imported: ModuleNotFoundError" in out


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("", "pass  node          its driver fits torch, and it can compile"),
        (
            "echo Traceback; echo 'configs.errors.ConfigError: needs gcc:  load it'; exit 1",
            "fail  node          needs gcc: load it",
        ),
        ("echo 'invalid account' >&2; exit 1", "fail  node          invalid account"),
    ],
)
def test_a_compute_node_is_asked_in_a_job_with_the_flags_of_the_run(
    launch: Launch, slurm: None, command: Command, answer: str, line: str, tmp_path: Path
) -> None:
    command("srun", f"printf '%s\\n' \"$@\" >{tmp_path}/words; {answer}")
    keys = ("resources.gpus_per_node=2", "resources.nodes=3", "train.compile=true")
    assert line in launch("plan", DIGITS, *keys, "--test")[1]
    words = (tmp_path / "words").read_text()
    assert "--gpus-per-node=2\n" in words
    # srun takes the last of several: one node, for a few minutes.
    assert words.rindex("--nodes=1\n") > words.rindex("--nodes=3\n")
    assert words.endswith("\nnode.check_compiler()\n")


@pytest.mark.parametrize(
    ("overrides", "compiles"),
    [([], False), (["train.compile=true"], True), (["optimizer.kind=adamw8bit"], True)],
)
def test_a_compiler_is_looked_for_where_a_lora_needs_one(
    overrides: list[str], compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("configs/finetune/flux-dev.yaml")
    config = resolve(merge(read_tree(path), parse_overrides(overrides)), source="test")
    asked: list[tuple[str, ...]] = []

    def run(*words: str, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(args=[], returncode=0)

    monkeypatch.setattr("launch.slurm.client.run_on_node", run)
    site = SimpleNamespace(flags={}, exports=dict)
    request: Any = SimpleNamespace(config=config, site=site, flags={})
    assert [found.level for found in machine.compute_node(request)] == ["pass"]
    assert (asked[0][-1] == "node.check_compiler()") == compiles


def test_no_job_is_run_unless_it_is_asked_for(
    launch: Launch, slurm: None, command: Command, tmp_path: Path
) -> None:
    command("srun", f"touch {tmp_path}/ran")
    assert " node " not in launch("plan", DIGITS)[1]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("module", "level"),
    [
        ("() { echo 'ERROR: Unable to locate a modulefile for gcc' >&2\n}", "fail"),
        ("() { :\n}", "pass"),
    ],
)
def test_modules_of_the_site_are_loaded(
    launch: Launch, slurm: None, monkeypatch: pytest.MonkeyPatch, module: str, level: str
) -> None:
    monkeypatch.setenv("BASH_FUNC_module%%", module)
    out = launch("plan", DIGITS, "--site", "carc-discovery")[1]
    assert f"{level}  modules " in out


def test_variables_that_override_a_plain_sbatch_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, slurm: None
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    levels = {line.topic: line.level for line in machine.site_checks(subject(), test=False)}
    assert levels["environment"] == "warn"
