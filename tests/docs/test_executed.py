"""Commands of README and docs that need no cluster and no minutes work as written."""

import glob
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis.__main__ import main as analysis
from finetune.__main__ import main as finetune
from launch.__main__ import main as launch
from runs.__main__ import main as runs
from runs.folder import ROOT
from tests.docs.command_classes import ELSEWHERE, EXECUTED, ON_A_CLUSTER, matching
from tests.docs.docs_sandbox import build
from tests.docs.page_commands import commands
from tests.real_runs import clean_environment
from train.__main__ import main as train

LAYOUTS, STUDY = "configs/studies/layouts.yaml", "configs/studies/digits-noise.yaml"
# The networks of all its cells take a minute to count, and differ in nothing that a plan says.
FEW_LAYOUTS = f"{LAYOUTS} layout=ddp train.compile=false activation_checkpointing.mode=none"
# Commands with placeholders, and concrete forms of them.
CONCRETE = {
    "git clone URL ditbench && cd ditbench": [f"git clone -q {ROOT} ditbench && cd ditbench"],
    "source env/activate.sh": ["source env/activate.sh && python -m runs show pretrain"],
    "python -m launch check configs/studies/NAME.yaml": [f"python -m launch check {LAYOUTS}"],
    "python -m launch check X... [key=value ...]": [
        f"python -m launch check {LAYOUTS} configs/pretrain/digits.yaml"
    ],
    "python -m launch plan X [key=value ...] [--measure] [--script]": [
        "python -m launch plan logs/RUN --script"
    ],
    "python -m launch plan STUDY [key=v1,v2 ...]": [
        f"python -m launch plan {STUDY} resources.gpu=a40 seed=0,1"
    ],
    f"python -m launch plan {LAYOUTS}": [f"python -m launch plan {FEW_LAYOUTS}"],
    "python -m launch status [RUN|STUDY|LOGS] [--once|--wait] [--all] [--json]": [
        "python -m launch status logs/RUN --once --json",
        "python -m launch status logs/STUDY --wait --json",
        "python -m launch status logs",
    ],
    "python -m launch why logs/RUN [--json]": ["python -m launch why logs/RUN --json"],
    "python -m analysis noise logs/RUN [--stages 10] [--json|--csv]": [
        "python -m analysis noise logs/RUN --stages 10 --json"
    ],
    "python -m tests.docs.render docs/studies/NAME.md": [
        "python -m tests.docs.render docs/studies/a.md"
    ],
    "python -m analysis report --check report.html": [
        "python -m analysis report logs/RUN --out report.html",
        "python -m analysis report --check report.html",
    ],
    # The page was rendered before.
    "python -m tests.docs.render --check docs/studies/a.md": [
        "python -m tests.docs.render docs/studies/a.md",
        "python -m tests.docs.render --check docs/studies/a.md",
    ],
}  # fmt: skip
MAINS: dict[str, Callable[[list[str]], int]] = {
    "analysis": analysis,
    "runs": runs,
    "launch": launch,
    "train": train,
    "finetune": finetune,
}
# Commands whose answer is no, and the line that says why.
NO = {
    "python -m launch check my.sbatch": r"my\.sbatch:3: warning: .*\[one-cpu\]",
    "python -m launch plan configs/finetune/flux-dev.yaml": r"fail  data +flux",
    "python -m launch plan configs/pretrain/dit-s2.yaml train.global_batch=512 resources.gpu=a40": (
        r"fail  data +data\.path"
    ),
    "python -m analysis cells --decided logs/STUDY": r"\bundecided\b",
    "python -m analysis cells --decided logs/STUDY --skip": r"\bundecided\b",
}
# A Slurm that accepts everything and knows no job.
SLURM = {
    "sinfo": r"""[[ $* == *%D* ]] || printf 'gpu*|2-00:00:00\n'""",
    "sbatch": "[[ $1 == --test-only ]]",
    "squeue": "exit 0",
    "sacct": "exit 1",
    "srun": "exit 0",
    "scontrol": "echo 'MaxArraySize            = 1001'",
}
# What the pages of studies show is executed by test_study_pages.py.
EXECUTED_HERE = [
    command
    for command, pages in commands().items()
    if matching(command, EXECUTED) and {page.parent.name for page in pages} != {"studies"}
]
# Submitted by other tests. A missing Flux or VAE is refused, and a synopsis is no command.
SUBMITTED = [
    command
    for command in commands()
    if matching(command, ON_A_CLUSTER | ELSEWHERE)
    and re.search(
        r"^(?:sbatch|python(?! -m launch (?:plan|check))).* configs/(?!finetune/|encode/)", command
    )
]
Typing = Callable[[str], int]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sandbox"), EXECUTED_HERE)


@pytest.fixture
def typing(sandbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Typing]:
    """Run a line in the sandbox as a shell would; return its exit code."""
    for name, script in SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    logs, path = str(sandbox / "logs"), f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = clean_environment(LOGS=logs, PATH=path)
    for name in os.environ.keys() - environment.keys():
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(sandbox)
    before = os.umask(0o077)
    yield run_line
    os.umask(before)


def run_line(line: str) -> int:
    words = [found for word in shlex.split(line) for found in glob.glob(word) or [word]]
    for module, main in MAINS.items():
        if words[:3] == ["python", "-m", module]:
            try:
                return main(words[3:])
            except SystemExit as left:
                return int(left.code or 0)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}, check=False
    )
    return done.returncode


@pytest.mark.parametrize("command", EXECUTED_HERE)
def test_a_command_works_as_it_is_written(
    command: str, sandbox: Path, typing: Typing, capfd: pytest.CaptureFixture[str]
) -> None:
    # `archive` does not overwrite.
    for packed in re.findall(r"--out (\S+\.tar\.xz)", command):
        (sandbox / packed).unlink()
    for line in CONCRETE.get(command, [command]):
        code, output = typing(line), "".join(capfd.readouterr())
        noes = re.findall(NO.get(command, "(?!)"), output)
        assert code == (1 if noes else 0), f"{line}: exit {code}\n{output}"
        assert output.count("\nfail  ") <= len(noes), output
        assert noes or command not in NO, output


@pytest.mark.parametrize("command", SUBMITTED)
def test_what_needs_a_cluster_would_be_taken(
    command: str, typing: Typing, capfd: pytest.CaptureFixture[str]
) -> None:
    """The one-machine Slurm runs it in small; here the same config is planned."""
    plain = re.sub(r"^sbatch (?:-\S+ )+jobs/\w+\.sbatch", "python -m launch submit", command)
    planned = plain.replace("launch submit", "launch plan").removesuffix(" --local")
    planned = planned.replace(LAYOUTS, FEW_LAYOUTS)
    code = typing(f"{planned} --script")
    assert code == 0, "".join(capfd.readouterr())


def test_every_form_that_is_made_concrete_is_in_the_docs() -> None:
    assert CONCRETE.keys() <= set(EXECUTED_HERE)
