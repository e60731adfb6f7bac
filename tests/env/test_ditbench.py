"""`ditbench` reaches every command, in the right checkout, and on the site of this host."""

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.__main__ import COMMANDS as ANALYSIS
from configs.__main__ import _parser as configs_parser
from finetune.__main__ import _COMMANDS as FINETUNE
from launch.__main__ import parser as launch_parser
from runs.folder import ROOT
from tests.slurm.cluster import clean_environment
from train.__main__ import _COMMANDS as TRAIN

ENV = ROOT / "env"
PYTHON = '#!/bin/bash\necho "$PYTHONPATH $SITE $LOGS $*"\n'
HOST = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()


def names(parser: argparse.ArgumentParser) -> list[str]:
    """The sub-commands of a parser."""
    (actions,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return list(actions.choices)


PARTS = {
    "launch": names(launch_parser()),
    "analysis": list(ANALYSIS),
    "configs": names(configs_parser()),
    "runs": ["show"],
    "train": list(TRAIN),
    "finetune": list(FINETUNE),
}


def typed(line: str, folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Type a line in a bare shell."""
    bare = {"PATH": clean_environment()["PATH"], "HOME": str(folder)}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=bare | changes, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


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


def sections() -> dict[str, str]:
    """The help by part."""
    shown = typed(f"{ENV}/ditbench.sh --help", ROOT)
    assert (shown.returncode, shown.stderr) == (0, "")
    return {text.partition(":")[0].strip(): text for text in shown.stdout.split("\n\n")[1:]}


def test_every_command_is_listed_under_its_part() -> None:
    shown = sections()
    assert shown.keys() == PARTS.keys()
    for part, commands in PARTS.items():
        listed = re.findall(r"^  (.*?)(?:  |:)", shown[part], re.M)
        words = [word for row in listed for word in re.split(r"[ ,]+", row)]
        assert sorted(set(words) - {part}) == sorted(commands)


def test_every_command_is_reached(one: Path) -> None:
    shown = sections()
    line, expected = "", []
    for part, commands in PARTS.items():
        for command in commands:
            is_flat = re.search(rf"^  {command}  ", shown[part], re.M)
            line += f"{'' if is_flat else part} {command} 'a b'\n"
            expected.append(f"{one} local {one}/logs -m {part} {command} a b")
    done = typed(
        f"while read -r words; do eval .venv/bin/ditbench $words; done <<'E'\n{line}E", one
    )
    assert done.stdout.splitlines() == expected
    assert done.stderr == ""


def test_every_hint_of_the_code_names_a_command() -> None:
    """A hint is read beside a shell or in the log of a job: both have `ditbench` on their PATH."""
    shown = sections().values()
    files = [file for part in PARTS for file in (ROOT / part).rglob("*.py")]
    for file in [*files, ROOT / "runs/state/reasons.yaml", ROOT / "jobs/study.sh"]:
        text = file.read_text(encoding="utf-8")
        # Between words of prose it is the name of the project.
        hint = r"(?:^ *|[`'\"(:;] ?)ditbench ([a-z][\w-]*)(?: ([a-z][\w-]*))?"
        for word, second in re.findall(hint, text, re.M):
            is_flat = any(re.search(rf"^  {word}  ", part, re.M) for part in shown)
            known = is_flat or (word in PARTS and second in ("", *PARTS[word]))
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
