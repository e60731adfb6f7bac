"""Every shell file is clean by shellcheck."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def shell_files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    listed = [name for name in listed if Path(name).is_file()]
    return [
        name
        for name in listed
        if name.endswith((".sh", ".sbatch"))
        or Path(name).read_bytes()[:20].startswith(b"#!/usr/bin/env bash")
    ]


def test_shell_files_are_clean() -> None:
    if shutil.which("shellcheck") is None:
        if os.environ.get("CI"):
            pytest.fail("shellcheck is missing: apt-get install shellcheck")
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    files = shell_files()
    assert len(files) > 8
    done = subprocess.run(["shellcheck", "-x", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
