"""A snapshot is the tree at submission, written once for all runs of it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.errors import ConfigError
from launch.submit import snapshot
from launch.submit.snapshot import read_tree, save
from runs.code_version import read_version


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a small repository with one commit."""
    root = tmp_path / "tree"
    root.mkdir()
    (root / ".gitignore").write_text("ignored\n")
    (root / "a.py").write_text("a = 1\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "One")
    return root


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", root, *words], check=True, capture_output=True)


HOSTILE = ["a b.txt", 'it\'s "quoted".py', "new\nline", "$(touch hacked);x", "-rf", "%j", "é", "'"]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "version.json"
    }


def test_tracked_and_new_files_are_saved_but_ignored_ones_are_not(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "new").mkdir()
    (repository / "new" / "b.py").write_text("b = 1\n")
    (repository / "ignored").write_text("secret")
    kept = contents(save(read_tree(repository), tmp_path / "logs"))
    assert set(kept) == {".gitignore", "a.py", "new/b.py"}
    assert kept["a.py"] == b"a = 1\n"


def test_names_may_hold_anything(repository: Path, tmp_path: Path) -> None:
    for name in HOSTILE:
        (repository / f"in {name}").mkdir()
        (repository / f"in {name}" / name).write_text(name)
    (repository / os.fsdecode(b"not-\xff-utf8")).write_text("x")
    kept = contents(save(read_tree(repository), tmp_path / "logs"))
    assert {f"in {name}/{name}" for name in HOSTILE} <= set(kept)
    assert os.fsdecode(b"not-\xff-utf8") in kept
    assert not list(tmp_path.rglob("hacked"))


def test_programs_and_links_keep_their_kind(repository: Path, tmp_path: Path) -> None:
    (repository / "run").write_text("#!/bin/sh\n")
    (repository / "run").chmod(0o755)
    (repository / "link").symlink_to("a.py")
    (repository / "dangling").symlink_to("/nowhere")
    folder = save(read_tree(repository), tmp_path / "logs")
    assert os.stat(folder / "run").st_mode & 0o777 == 0o500
    assert os.stat(folder / "a.py").st_mode & 0o777 == 0o400
    assert os.readlink(folder / "link") == "a.py"
    assert os.readlink(folder / "dangling") == "/nowhere"


def test_the_same_tree_is_saved_once_and_another_elsewhere(
    repository: Path, tmp_path: Path
) -> None:
    first = save(read_tree(repository), tmp_path / "logs")
    assert save(read_tree(repository), tmp_path / "logs") == first
    (repository / "a.py").write_text("a = 2\n")
    second = save(read_tree(repository), tmp_path / "logs")
    (repository / "a.py").chmod(0o755)
    third = save(read_tree(repository), tmp_path / "logs")
    assert len({first, second, third}) == 3
    assert (first / "a.py").read_text() == "a = 1\n"
    assert sorted((tmp_path / "logs" / ".code").iterdir()) == sorted([first, second, third])


def test_purged_files_are_restored(repository: Path, tmp_path: Path) -> None:
    folder = save(read_tree(repository), tmp_path / "logs")
    (folder / "a.py").unlink()
    assert save(read_tree(repository), tmp_path / "logs") == folder
    assert (folder / "a.py").read_text() == "a = 1\n"


def test_a_snapshot_knows_its_commit_and_patch(repository: Path, tmp_path: Path) -> None:
    clean = read_version(save(read_tree(repository), tmp_path / "logs"))
    assert clean is not None
    assert (clean.dirty, clean.patch) == (False, "")
    (repository / "new.py").write_text("new\n")
    new = read_version(save(read_tree(repository), tmp_path / "logs"))
    assert new is not None
    assert (new.commit, new.dirty, new.patch) == (clean.commit, True, "")
    (repository / "a.py").write_text("a = 2\n")
    edited = read_version(save(read_tree(repository), tmp_path / "logs"))
    assert edited is not None
    assert "-a = 1\n+a = 2\n" in edited.patch


def test_a_data_set_in_the_tree_is_refused_by_name(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MAX_BYTES", 1000)
    (repository / "images.bin").write_bytes(bytes(2000))
    with pytest.raises(ConfigError, match=r"'images\.bin'; name what is not code in \.gitignore"):
        read_tree(repository)


def passes(tree: snapshot.Tree, logs: Path) -> bool:
    """Whether a job would go on after the check of its snapshot."""
    script = f"cd /; {tree.check(logs)}\necho runs"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) in (("runs\n", 0), ("", 2)), done
    assert ("submit again" in done.stderr) == (done.returncode == 2)
    return done.returncode == 0


@pytest.mark.parametrize(
    "script",
    [
        "rm a.py",
        "chmod u+w a.py; echo evil >a.py",
        "chmod +x a.py",
        "mv a.py b; mv version.json a.py; mv b version.json",
        "echo evil >sitecustomize.py",
        "mkdir -p evil; touch evil/__init__.py",
        "ln -s /tmp __pycache__",
        "ln -sfn /tmp link",
        "touch $'new\\nline'",
    ],
)
def test_a_job_does_not_start_on_a_changed_snapshot(
    repository: Path, tmp_path: Path, script: str
) -> None:
    (repository / "link").symlink_to("a.py")
    tree = read_tree(repository)
    folder = save(tree, tmp_path / "logs")
    subprocess.run(["bash", "-c", script], cwd=folder, check=True)
    assert not passes(tree, tmp_path / "logs")


def test_what_python_compiled_is_no_change(repository: Path, tmp_path: Path) -> None:
    tree = read_tree(repository)
    folder = save(tree, tmp_path / "logs")
    subprocess.run([sys.executable, "-c", "import a"], cwd=folder, env={}, check=True)
    assert list(folder.rglob("*.pyc"))
    assert passes(tree, tmp_path / "logs")
    assert save(tree, tmp_path / "logs") == folder


def test_a_file_added_to_a_snapshot_is_noticed(repository: Path, tmp_path: Path) -> None:
    tree = read_tree(repository)
    (save(tree, tmp_path / "logs") / "sitecustomize.py").write_text("evil")
    with pytest.raises(ConfigError, match="changed since the snapshot was made"):
        save(tree, tmp_path / "logs")


def test_a_file_that_another_user_compiled_ends_the_job(
    repository: Path, shared: Path, intruder: Callable[[str], None]
) -> None:
    tree = read_tree(repository)
    folder = save(tree, shared)
    (folder / "__pycache__").mkdir()
    folder.parent.chmod(0o755)
    for path in (folder, folder / "__pycache__"):
        path.chmod(0o777)
    intruder(f"echo evil >.code/{folder.name}/__pycache__/a.cpython-311.pyc")
    for path in (folder, folder / "__pycache__"):
        path.chmod(0o755)
    assert not passes(tree, shared)
    with pytest.raises(ConfigError, match=r"\.pyc: belongs to another user"):
        save(tree, shared)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_above_that_others_may_rename_is_refused(
    repository: Path, shared: Path, mode: int
) -> None:
    tree = read_tree(repository)
    shared.chmod(0o755)
    (shared / "home" / "logs").mkdir(parents=True)
    save(tree, shared / "home" / "logs")
    os.chown(shared / "home", -1, 12345)
    assert passes(tree, shared / "home" / "logs")
    (shared / "home").chmod(mode)
    assert not passes(tree, shared / "home" / "logs")
    with pytest.raises(ConfigError, match="home: others may write to it"):
        save(tree, shared / "home" / "logs")


def test_a_snapshot_made_beforehand_by_another_user_is_refused(
    repository: Path, shared: Path, intruder: Callable[[str], None]
) -> None:
    tree = read_tree(repository)
    code = f".code/{tree.digest[:16]}"
    intruder(f"mkdir -p {code}; echo 'import evil' >{code}/a.py; chmod -R a+rX .code")
    with pytest.raises(ConfigError, match=r"code: belongs to another user .* set LOGS"):
        save(tree, shared)
    assert not passes(tree, shared)


@pytest.mark.parametrize("mode", ["0755", "1777"])
def test_a_snapshot_of_another_user_in_a_folder_of_ours_is_refused(
    repository: Path, shared: Path, intruder: Callable[[str], None], mode: str
) -> None:
    tree = read_tree(repository)
    (shared / ".code").mkdir()
    (shared / ".code").chmod(0o777)
    intruder(f"mkdir .code/{tree.digest[:16]}")
    (shared / ".code").chmod(int(mode, 8))
    with pytest.raises(ConfigError, match=f"{tree.digest[:16]}: belongs to another user"):
        save(tree, shared)
    assert not passes(tree, shared)


def test_a_snapshot_that_others_may_write_to_is_refused(repository: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with pytest.raises(ConfigError, match="others may write to it"):
            save(read_tree(repository), tmp_path / "logs")
    finally:
        os.umask(before)


def test_others_cannot_replace_a_snapshot(
    repository: Path, shared: Path, intruder: Callable[[str], None]
) -> None:
    folder = save(read_tree(repository), shared)
    for script in (
        f"mv .code/{folder.name} x",
        "mv .code x",
        f"touch .code/{folder.name}/torch.py",
    ):
        with pytest.raises(subprocess.CalledProcessError):
            intruder(script)
