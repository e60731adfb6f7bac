"""`env/create.sh` keeps what is installed, and completes a partial installation."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_runs import clean_environment, finished

COMPLETE = Path(sys.prefix) / ".installed-requirements-dev"


def create(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return finished("env/create.sh", *arguments, env=clean_environment(**changes), timeout=600)


@pytest.mark.skipif(not COMPLETE.exists(), reason="this virtualenv was not made by env/create.sh")
def test_a_second_time_changes_nothing() -> None:
    before = COMPLETE.stat().st_mtime_ns
    done = create("dev")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert COMPLETE.stat().st_mtime_ns == before


def test_a_partial_installation_is_completed_and_a_failed_one_is_not_recorded(
    tmp_path: Path,
) -> None:
    venv = tmp_path / "a venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    (venv / "bin" / "python").chmod(0o755)
    (venv / ".installed-none").touch()
    # A package that is installed already needs no index.
    wanted = {"VENV": str(venv), "TORCH": "pip", "TORCH_INDEX": "file:///nowhere"}
    done = create(**wanted, PIP_NO_INDEX="1")
    assert done.returncode != 0
    assert (venv / ".installed-none").exists()
    assert not (venv / ".installed-light").exists()
    version = subprocess.run([venv / "bin" / "python", "--version"], check=False)
    assert version.returncode == 0


@pytest.mark.parametrize("file", ["conda-meta/history", "pyvenv.cfg", "thesis.tex"])
def test_a_folder_that_it_did_not_make_is_left_as_it_is(tmp_path: Path, file: str) -> None:
    kept = tmp_path / "mine" / file
    kept.parent.mkdir(parents=True)
    kept.write_text("years of work\n")
    done = create("light", VENV=str(tmp_path / "mine"))
    assert done.returncode == 2
    assert done.stderr == (
        f"{tmp_path}/mine has no pip and was not made by env/create.sh: "
        "set VENV to another folder, or delete it\n"
    )
    assert kept.read_text() == "years of work\n"


def test_an_unknown_site_is_named_with_the_fix() -> None:
    done = create(SITE="nowhere")
    assert done.returncode == 2
    assert "SITE=nowhere" in done.stderr
    assert "env/sites/" in done.stderr


def test_ai_toolkit_is_installed_only_where_the_site_says() -> None:
    done = create("ai-toolkit", AI_TOOLKIT="")
    assert done.returncode == 2
    assert "AI_TOOLKIT=/a/folder in env/sites/local.sh" in done.stderr


def test_without_its_source_nothing_of_ai_toolkit_is_created(tmp_path: Path) -> None:
    wanted = {"AI_TOOLKIT": str(tmp_path / "kit"), "AI_TOOLKIT_SOURCE": str(tmp_path / "nowhere")}
    done = create("ai-toolkit", **wanted)
    assert done.returncode == 1
    assert f"cannot get commit 27a03a91 of {tmp_path}/nowhere" in done.stderr
    assert f"copy a checkout of that commit to {tmp_path}/kit" in done.stderr
    assert not list(tmp_path.iterdir())


def checkout(folder: Path) -> Path:
    """Make a repository with a commit of two files, and its venv whose pip does nothing."""
    (folder / "venv" / "bin").mkdir(parents=True)
    python = folder / "venv" / "bin" / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -m ] || { echo "no nms in torchvision" >&2; exit 1; }\n')
    python.chmod(0o755)
    for name in ("run.py", "requirements_base.txt"):
        (folder / name).write_text(f"# {name}\n")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for words in (
        ["init", "-q"],
        ["add", "run.py", "requirements_base.txt"],
        ["commit", "-qm", "a"],
    ):
        subprocess.run([*git, *words], check=True)
    return folder


def test_a_checkout_that_lacks_files_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    kit = checkout(tmp_path / "kit")
    (kit / "requirements_base.txt").unlink()
    done = create("ai-toolkit", AI_TOOLKIT=str(kit))
    assert done.returncode == 1
    assert "not a whole checkout: it lacks 1 files, such as requirements_base.txt" in done.stderr


def test_packages_that_do_not_import_are_not_recorded_as_installed(tmp_path: Path) -> None:
    kit = checkout(tmp_path / "kit")
    done = create("ai-toolkit", AI_TOOLKIT=str(kit))
    assert done.returncode == 1
    assert "no nms in torchvision" in done.stderr
    assert f"{kit}/venv is installed, but does not import" in done.stderr
    assert not (kit / "venv" / ".installed-ai-toolkit").exists()


def test_an_existing_checkout_gets_a_virtualenv_with_its_requirements(tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / "run.py").touch()
    (kit / "requirements_base.txt").write_text("git+https://nowhere.invalid/diffusers\npip\n")
    done = create("ai-toolkit", AI_TOOLKIT=str(kit), PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    # Without an index its first packages are not found.
    assert "No matching distribution found for torch" in done.stderr
    assert (kit / "venv" / "requirements.txt").read_text() == "pip\n"
    assert not (kit / "venv" / ".installed-ai-toolkit").exists()
