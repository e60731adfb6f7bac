"""The flags of the command line are frozen, and help answers at once."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from launch.__main__ import parse, parser
from runs.folder import ROOT


def flags(command: argparse.ArgumentParser) -> list[str]:
    return sorted(word for action in command._actions for word in action.option_strings)


def test_a_dry_run_of_submit_is_a_plan() -> None:
    options = parse(["submit", "my.sbatch", "--vary", "--lr=1,2", "--dry-run", "--yaml"])
    assert (options.command, options.vary, options.yaml) == ("plan", ["--lr=1,2"], True)


def test_these_are_all_its_flags() -> None:
    (commands,) = (
        action.choices
        for action in parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert {name: flags(command) for name, command in commands.items()} == {
        "check": [
            "--fast", "--help", "--resolution", "--slurm", "--trigger", "--vae", "-h",
        ],
        "plan": [
            "--all", "--force", "--help", "--measure", "--new", "--repeats", "--resume",
            "--script", "--seeds", "--site", "--snapshot", "--vary", "--yaml", "-h",
        ],
        "submit": [
            "--force", "--help", "--local", "--new", "--repeats", "--resume", "--seeds", "--site",
            "--snapshot", "--vary", "-h",
        ],
        "status": ["--all", "--help", "--json", "--once", "--wait", "-h"],
        "cancel": ["--help", "-h"],
        "tail": ["--help", "--lines", "-h", "-n"],
        "rerun": ["--force", "--help", "--site", "-h"],
        "doctor": [
            "--account", "--force", "--help", "--partition", "--site", "-h",
        ],
        "why": ["--help", "--json", "-h"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "submit c.yaml a=1 b=2 --local -- --hold",
        "submit --local c.yaml a=1 b=2 -- --hold",
        "submit c.yaml --local a=1 b=2 -- --hold",
        "plan c.yaml a=1 --script b=2 -- --hold",
    ],
)
def test_overrides_may_stand_on_both_sides_of_a_flag(line: str) -> None:
    options = parse(line.split())
    assert (options.source, options.overrides) == (Path("c.yaml"), ["a=1", "b=2"])
    assert (getattr(options, "local", options.command == "plan"), options.flags) == (
        True,
        ["--hold"],
    )


@pytest.mark.parametrize(
    "line",
    ["submit c.yaml --fast", "cancel", "tail a b", "status -- --x", ""],
)
def test_misuse_exits_with_code_2_and_prints_the_usage(line: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 2
    assert "usage: ditbench" in capsys.readouterr().err


def test_help_shows_an_example_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from launch.__main__ import parse\n"
        "try: parse(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "ditbench submit configs/pretrain/" in answer.stdout
    assert answer.stdout.endswith("\n[]\n")


def test_flags_of_batch_scripts_are_refused_for_a_config(launch) -> None:
    for words in (["--vary", "--lr=1,2"], ["--seeds", "3"], ["--repeats", "3"], ["--resume", "x"]):
        for command in ("plan", "submit"):
            code, out, err = launch(command, "configs/pretrain/digits.yaml", *words)
            assert (code, out) == (2, "")
            assert f"{words[0]} is for a batch script" in err


def test_the_config_of_a_batch_script_is_not_submitted(launch, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("kind: command\nrun: a\n")
    for words in ([], ["params.lr=1,2"]):
        code, out, err = launch("submit", tmp_path / "my.yaml", *words)
        assert (code, out) == (2, "")
        assert "submit the script itself: ditbench submit SCRIPT" in err
