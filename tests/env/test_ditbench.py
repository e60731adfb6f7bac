"""`ditbench` reaches every command, in the right checkout, and on the site of this host."""

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.__main__ import COMMANDS as ANALYSIS
from analysis.__main__ import VIEWS
from finetune.__main__ import _COMMANDS as FINETUNE
from launch.__main__ import parser as launch_parser
from runs.folder import ROOT
from tests.real_runs import finished
from tests.slurm.cluster import clean_environment
from train.__main__ import _COMMANDS as TRAIN

ENV = ROOT / "env"
PYTHON = '#!/bin/bash\necho "$PYTHONPATH $SITE $LOGS $*"\n'
HOST = finished("hostname").stdout.strip()


def names(parser: argparse.ArgumentParser) -> list[str]:
    """The sub-commands of a parser."""
    (actions,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return list(actions.choices)


# What `check` and `plan` call in a process of its own.
INTERNAL = ("check-data", "cost", "measure")
PARTS = {
    "launch": names(launch_parser()),
    "analysis": list(ANALYSIS),
    "runs": ["show"],
    "train": [name for name in TRAIN if name not in INTERNAL],
    "finetune": [name for name in FINETUNE if name not in INTERNAL],
}
FLAT = ("launch", "analysis", "runs")


def typed(line: str, folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Type a line in a bare shell."""
    bare = {"PATH": clean_environment()["PATH"], "HOME": str(folder)}
    return finished("bash", "-c", line, cwd=folder, env=bare | changes)


def checkout(root: Path, *, venv: Path | None = None) -> Path:
    """Make a checkout with its own virtualenv, or one that it shares, whose python prints."""
    shutil.copytree(ENV, root / "env", ignore=shutil.ignore_patterns("slurm"))
    if venv is not None:
        (root / ".venv").symlink_to(venv)
        return root
    bin_ = root / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "activate").write_text(f'PATH="{bin_}:$PATH"\n')
    (bin_ / "python").write_text(PYTHON)
    (bin_ / "python").chmod(0o755)
    (bin_ / "ditbench").symlink_to(root / "env" / "ditbench.sh")
    return root


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("first clone") / "it")


def listed() -> dict[str, str]:
    """The commands of the help, with what is said of each."""
    shown = typed(f"{ENV}/ditbench.sh --help", ROOT)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.count("\n") < 40
    assert max(map(len, shown.stdout.splitlines())) <= 80
    return dict(re.findall(r"^  (\w+)  +(.*)$", shown.stdout, re.M))


def test_the_help_lists_every_command_on_one_screen() -> None:
    said = listed()
    flat = [name for part in FLAT for name in PARTS[part]]
    assert [*said] == [*sorted(flat, key=[*said].index), "train", "finetune"]
    for part in ("train", "finetune"):
        assert set(PARTS[part]) <= set(re.findall(r"(\w+)[,:]", said[part]))
    views = {f"--{view}" for views in VIEWS.values() for view in views}
    assert views <= set(re.findall(r"--[\w-]+", " ".join(said.values())))


def test_there_are_at_most_thirty_commands() -> None:
    assert sum(map(len, PARTS.values())) <= 30


def test_every_command_is_reached(one: Path) -> None:
    line, expected = "", []
    for part, commands in PARTS.items():
        for command in commands:
            line += f"{'' if part in FLAT else part} {command} 'a b'\n"
            expected.append(f"{one} local {one}/logs -m {part} {command} a b")
    done = typed(
        f"while read -r words; do eval .venv/bin/ditbench $words; done <<'E'\n{line}E", one
    )
    assert done.stdout.splitlines() == expected
    assert done.stderr == ""


def test_every_hint_of_the_code_names_a_command() -> None:
    """A hint is read beside a shell or in the log of a job: both have `ditbench` on their PATH."""
    flat = [name for part in FLAT for name in PARTS[part]]
    files = [file for part in ("configs", *PARTS) for file in (ROOT / part).rglob("*.py")]
    for file in [*files, ROOT / "runs/state/reasons.yaml", ROOT / "jobs/study.sh"]:
        text = file.read_text(encoding="utf-8")
        # Between words of prose it is the name of the project.
        hint = r"(?:^ *|[`'\"(:;] ?)ditbench ([a-z][\w-]*)(?: ([a-z][\w-]*))?"
        for word, second in re.findall(hint, text, re.M):
            known = word in flat or second in ("", *PARTS.get(word, ["COMMAND"]))
            assert known, f"{file}: ditbench {word} {second}"


@pytest.mark.parametrize(
    ("words", "message"),
    [("", "usage: ditbench COMMAND"), ("submti x", "ditbench: no command 'submti'; `ditbench --h")],
)
def test_misuse_is_said(words: str, message: str, one: Path) -> None:
    done = typed(f".venv/bin/ditbench {words}", one)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)


def test_two_checkouts_that_share_a_virtualenv_run_their_own_code(
    one: Path, tmp_path: Path
) -> None:
    other = checkout(tmp_path / "it", venv=one / ".venv")
    assert typed(".venv/bin/ditbench runs x", other).stdout.startswith(f"{other} ")
    assert typed("source env/activate.sh; ditbench runs x", other).stdout.startswith(f"{other} ")
    line = f"source env/activate.sh; '{one}'/../it/.venv/bin/ditbench runs x"
    assert typed(line, other).stdout.startswith(f"{one} ")


def test_a_site_file_written_after_the_activation_is_used(tmp_path: Path) -> None:
    root = checkout(tmp_path / "it")
    site = f"echo '# host: {HOST}\nLOGS=${{LOGS:-/scratch}}' >env/sites/mine.sh"
    show = "ditbench runs x; source env/activate.sh; echo $SITE $LOGS"
    done = typed(f"source env/activate.sh; echo $SITE $LOGS; {site}; {show}", root)
    local, ditbench, again = done.stdout.splitlines()
    assert local == f"local {root}/logs"
    assert ditbench == f"{root} mine /scratch -m analysis runs x"
    assert again == "mine /scratch"
    # Set by the user, before or after the activation.
    asked = typed(f"source env/activate.sh; {show}", root, SITE="local", LOGS="/elsewhere")
    assert asked.stdout.splitlines()[-1] == "local /elsewhere"
    later = typed(f"source env/activate.sh; export SITE=generic LOGS=/mine; {show}", root)
    assert later.stdout.splitlines()[-1] == "generic /mine"


def test_a_job_keeps_the_site_of_its_submission(tmp_path: Path) -> None:
    """The name of a compute node may match no site file."""
    root = checkout(tmp_path / "it")
    (root / "env/sites/mine.sh").write_text(f"# host: {HOST}\nLOGS=${{LOGS:-/scratch}}\n")
    job = "SLURM_JOB_ID=7 bash -c 'source env/activate.sh; echo $SITE $LOGS'"
    hide = "sed -i '/host/d' env/sites/mine.sh"
    done = typed(f"source env/activate.sh; {hide}; {job}", root)
    assert done.stdout == "mine /scratch\n", done.stderr
