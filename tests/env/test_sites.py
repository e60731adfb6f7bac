"""Site files: the flags of each, how one is selected, and that modules are loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runs.folder import ROOT
from tests.real_runs import finished

SITES = ROOT / "env" / "sites"
# Environment modules that record their arguments.
MODULES = {"BASH_FUNC_module%%": '() { echo "module $*" >&2\n}'}


def shell(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
    }
    words = ("bash", "-euo", "pipefail", "-c", script, "bash", *arguments)
    return finished(*words, env=environment | variables, cwd=ROOT)


def describe(site: str, gpu: str, nodes: int, gpus: int, **variables: str) -> list[str]:
    answer = shell(
        'env/describe.sh "$@"', gpu, str(nodes), str(gpus), **({"SITE": site} | variables)
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    ("site", "flags"),
    [
        ("local", ["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=a40:4"]),
        ("generic", ["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=a40:4"]),
        ("example", ["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=a40:4"]),
        (
            "carc-discovery",
            ["--partition=gpu", "--nodes=2", "--ntasks-per-node=1", "--gpus-per-task=a40:4"],
        ),
    ],
)
def test_each_site_spells_its_gpus(site: str, flags: list[str]) -> None:
    assert describe(site, "a40", 2, 4)[5:] == flags


def test_every_site_accepts_any_gpu_and_no_gpu() -> None:
    for file in SITES.glob("*.sh"):
        one = describe(file.stem, "", 1, 2)[5:]
        assert any(flag.startswith("--gpu") and flag.endswith("=2") for flag in one)
        assert not any("gpu" in flag for flag in describe(file.stem, "a40", 1, 0)[-2:])


def test_the_site_decides_where_runs_go_unless_the_environment_does() -> None:
    user = finished("id", "-un").stdout.strip()
    assert describe("carc-discovery", "", 1, 1)[1] == f"/scratch1/{user}/ditbench"
    assert describe("carc-discovery", "", 1, 1, LOGS="/elsewhere")[1] == "/elsewhere"
    assert describe("local", "", 1, 1)[:4] == ["local", f"{ROOT}/logs", "077", f"{ROOT}/.venv"]


def test_carc_loads_its_modules_and_leaves_the_shell_as_it_was() -> None:
    script = (
        'source env/site.sh; read_site env/sites; set +u; load_modules; echo "$- $UNSET_VARIABLE"'
    )
    answer = shell(script, SITE="carc-discovery", **MODULES)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == "module load gcc/12.3.0 python/3.11.4 git\n"
    assert "u" not in answer.stdout.split()[0]


def test_a_conda_environment_is_activated_without_conda(tmp_path: Path) -> None:
    folder = tmp_path / "my envs" / "dit"
    for part in ("bin", "conda-meta", "etc/conda/activate.d"):
        (folder / part).mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "etc" / "conda" / "activate.d" / "cuda.sh").write_text(
        'export CUDA_HOME="$CONDA_PREFIX/cuda$UNSET_VARIABLE"\n'
    )
    script = 'source env/activate.sh; command -v python; echo "$CUDA_HOME $CONDA_PREFIX $-"'
    answer = shell(script, SITE="local", VENV=str(folder))
    assert answer.returncode == 0, answer.stderr
    python, variables = answer.stdout.splitlines()
    assert python == f"{folder}/bin/python"
    assert variables.startswith(f"{folder}/cuda {folder} ")
    assert "u" in variables.rpartition(" ")[2]


def test_a_site_with_modules_needs_the_command() -> None:
    answer = shell("source env/site.sh; read_site env/sites; load_modules", SITE="carc-discovery")
    assert answer.returncode == 2
    assert "has no 'module' command" in answer.stderr


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("discovery1.usc.edu", "carc-discovery"),
        ("d05-10.hpc.usc.edu", "carc-discovery"),
        ("login.cluster.example.edu", "example"),
        ("laptop", "local"),
    ],
)
def test_a_site_is_selected_by_the_name_of_the_host(host: str, site: str, tmp_path: Path) -> None:
    (tmp_path / "hostname").write_text(f"#!/bin/sh\necho {host}\n")
    (tmp_path / "hostname").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    answer = shell('source env/site.sh; read_site env/sites; echo "$SITE"', PATH=path)
    assert answer.stdout == f"{site}\n"


def test_flags_for_every_job_come_from_one_line_of_a_copy(tmp_path: Path) -> None:
    text = (SITES / "example.sh").read_text()
    (tmp_path / "mine.sh").write_text(text.replace("JOB_FLAGS=()", "JOB_FLAGS=(--account=a --x=1)"))
    script = f"source env/site.sh; read_site {tmp_path}; job_flags a100 1 2"
    assert shell(script, SITE="mine").stdout.splitlines() == [
        "--account=a", "--x=1", "--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=a100:2",
    ]  # fmt: skip


def test_a_missing_site_is_misuse() -> None:
    answer = shell("env/describe.sh a40 1 1", SITE="nowhere")
    assert answer.returncode == 2
    assert "copy env/sites/example.sh to it, or unset SITE" in answer.stderr


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SITE": "../.."}, "SITE=../..: no such file"),
        ({"SITE": "../../tmp/evil"}, "SITE=../../tmp/evil: no such file"),
        ({"LOGS": "~"}, "LOGS=~: the shell did not expand ~"),
        ({"VENV": "~/venv"}, "VENV=~/venv: the shell did not expand ~"),
        ({"CONTAINER": "/no.sif"}, "CONTAINER=/no.sif: no such image"),
        ({"UMASK": "abc"}, "UMASK=abc: not an octal mask"),
        ({"UMASK": "777"}, "UMASK=777: not an octal mask"),
        ({"UMASK": "007"}, "UMASK=007: not an octal mask that lets only the owner write"),
    ],
)
@pytest.mark.parametrize("script", ["env/describe.sh '' 1 1", "source env/activate.sh"])
def test_a_name_that_is_none_is_refused_in_one_line(
    script: str, variables: dict[str, str], message: str
) -> None:
    answer = shell(script, **({"SITE": "local"} | variables))
    assert answer.returncode == 2
    assert answer.stderr.startswith(message)
    assert answer.stderr.count("\n") == 1
