"""The whole batch script: what `plan --script` prints is what is submitted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runs.folder import ROOT, find_runs
from tests.launch.conftest import DIGITS

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def _same_id(monkeypatch: pytest.MonkeyPatch, slurm: None) -> None:
    """Give every run the same id, on a cluster that accepts it."""
    monkeypatch.setattr("launch.submit.request.new_id", lambda: "1120-093000-1a2b")


def stable(text: str, tmp_path: Path) -> str:
    """Return the text without what differs between machines."""
    text = text.replace(str(tmp_path), "/TMP").replace(sys.prefix, "/VENV")
    text = text.replace(str(ROOT), "/CHECKOUT")
    text = re.sub(r"\b[0-9a-f]{64}\b", "HASH", text)
    # A private group may write.
    text = re.sub(r"-perm /002 -o -perm /020 ! -gid \d+", "-perm /022", text)
    return re.sub(r"\.code/[0-9a-f]{16}", ".code/TREE", text)


# Words of the command line before the `--`, and those after it.
CASES = {
    "plain": ("resources.gpu=a40", ""),
    "two-nodes": (
        "resources.gpu=a100 resources.nodes=2 resources.gpus_per_node=2 resources.hours=72.5 "
        "resources.cpus_per_gpu=6 resources.memory_gb=120",
        "--partition=long",
    ),
    "carc": ("--site carc-discovery resources.gpu=a40 resources.gpus_per_node=2", ""),
    "no-gpu": ("resources.gpus_per_node=0", ""),
    "any-gpu-and-flags": (
        "train.steps=5",
        "--account=lab_123 --begin=now+1hour --exclusive --time=1-00:00:00",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_script_matches_the_golden_text(name: str, launch, tmp_path: Path) -> None:
    words, flags = CASES[name]
    code, out, err = launch("plan", DIGITS, *words.split(), "--script", "--", *flags.split())
    assert (code, "fail" in err) == (0, False)
    golden = GOLDEN / f"{name}.sbatch"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(stable(out, tmp_path))
    assert stable(out, tmp_path) == golden.read_text()


@pytest.fixture
def without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no command of Slurm."""
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname", "git", "hostname", "env"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_a_dry_run_needs_no_slurm(launch, without_slurm: None) -> None:
    code, out, err = launch("plan", DIGITS, "--script")
    assert (code, out.startswith("#!/bin/bash\n")) == (0, True)
    assert err == "warn  cluster       Slurm not found\n"


def executed(text: str, folder: Path) -> list[str]:
    """Return the words of the script's last command as bash parses them."""
    out = folder / "words"
    # No snapshot is there to check, so its line says so and the script goes on.
    stub = 'cd() { :; }; exec() { printf "%s\\0" "$@" >"$OUT"; }\n'
    text = text.replace("; exit 2; fi", "; fi")
    subprocess.run(["bash", "-c", stub + text], check=True, cwd=folder, env={"OUT": str(out)})
    return out.read_bytes().decode().split("\0")[:-1]


HOSTILE = [
    "a b", "it's", 'say "x"', "$(touch hacked)", "`touch hacked`", "a;touch hacked", "-x", "--help",
    "%j", "%x%%", "#SBATCH --uid=0", "a&b|c>d", "*", "~root", "!!", "é", "{a,b}", "$HOME",
]  # fmt: skip


# A few names that begin with what may act at the beginning, and hold all the others.
@pytest.mark.parametrize("name", [f"{first}{''.join(HOSTILE)}" for first in ("-x", "#", "~", "*")])
def test_no_name_reaches_a_shell_unquoted(
    name: str, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setenv("LOGS", str(tmp_path / name / "logs"))
    monkeypatch.setenv("VENV", str(tmp_path / name / "venv"))
    (tmp_path / name / "venv").symlink_to(sys.prefix)
    config = tmp_path / name / f"{name}.yaml"
    config.write_text("{}\n")
    _, out, _ = launch("plan", config, "--script")
    run = tmp_path / name / "logs" / f"{name}-1120-093000-1a2b"
    shell, script, source = executed(out, tmp_path)
    assert (shell, source) == ("bash", str(run))
    assert script.startswith(f"{tmp_path / name}/logs/.code/")
    directives = [line for line in out.splitlines() if line.startswith("#SBATCH")]
    assert len(directives) == 11
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.parametrize("name", ["new\nline", "tab\t", "esc\x1b", "back\\slash"])
def test_a_folder_that_slurm_cannot_take_is_refused(
    name: str, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path / name))
    code, out, err = launch("plan", DIGITS, "--script")
    assert (code, out) == (2, "")
    assert "without backslashes and control characters" in err


@pytest.mark.parametrize("name", ["new\nline", "back\\slash"])
def test_a_config_whose_name_is_invalid_for_a_job_is_refused(
    name: str, launch, tmp_path: Path
) -> None:
    config = tmp_path / f"{name}.yaml"
    config.write_text("{}\n")
    code, out, err = launch("plan", config, "--script")
    assert (code, out) == (2, "")
    assert "rename the YAML file" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope.yaml"], "nope.yaml: no such file"),
        ([DIGITS, "train.stps=5"], "did you mean train.steps?"),
        ([DIGITS, "data.source=folder", "data.path=/nope", "data.channels=3"], "/nope: no such"),
        ([DIGITS, "train.global_batch=7", "resources.nodes=2"], "not divide over 2 data ranks"),
        ([DIGITS, "--site=nowhere"], "SITE=nowhere: no such file"),
        ([DIGITS, "--", "-p", "gpu"], "'-p' is not a flag; write each as one word"),
    ],
)
def test_an_invalid_request_is_misuse(
    words: list[str | Path], message: str, launch, site: Path
) -> None:
    code, out, err = launch("submit", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert not site.exists()


def test_without_slurm_the_message_names_local(launch, without_slurm: None, site: Path) -> None:
    code, _, err = launch("submit", DIGITS)
    assert (code, "or run here with --local" in err) == (2, True)
    assert not site.exists() or find_runs(site) == []
