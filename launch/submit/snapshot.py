"""The tree as it is when a job is submitted, kept in `LOGS/.code/`, so that edits change no job.

It holds the tracked files and the new ones that git does not ignore. Its name is a hash of the
commit and of every file's path, mode and content, so runs of the same tree share one folder.
"""

import hashlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.disk import sync_folder
from configs.errors import ConfigError
from configs.run.code_version import Version, read_version, without_git_variables

# A data set that lies in the checkout unignored shall not be copied for each edit.
MOST_BYTES = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class File:
    """A file or a symbolic link of the tree: its path in it, and its bytes (or where it points)."""

    path: bytes
    kind: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Everything that a snapshot will hold."""

    digest: str
    files: list[File]

    def folder(self, logs: Path) -> Path:
        """Where it is kept, made or not."""
        return logs / ".code" / self.digest


def read_tree(root: Path) -> Tree:
    """The tree of a checkout as it is now; `ConfigError` where git cannot list it."""
    files = list(_files(root))
    runs = read_version(root)
    if runs is not None:
        files.append(File(path=b"version.json", kind="file", content=runs.to_json().encode()))
    return Tree(digest=_digest(files, runs), files=files)


def keep(tree: Tree, logs: Path) -> Path:
    """The tree's folder, complete, whoever else makes the same one at this moment."""
    folder = tree.folder(logs)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = folder.parent / f".{tree.digest}.{secrets.token_hex(4)}.partial"
        _complete(beside, tree)
        try:
            beside.rename(folder)
        except OSError:
            # Another launcher was first.
            shutil.rmtree(beside)
    # Scratch space is purged file by file.
    _complete(folder, tree)
    return folder


def _files(root: Path) -> Iterator[File]:
    size = 0
    for path in _listed(root):
        at = os.path.join(os.fsencode(root), path)
        try:
            if os.path.islink(at):
                yield File(path=path, kind="link", content=os.readlink(at))
                continue
            size += os.stat(at).st_size
            if size > MOST_BYTES:
                raise ConfigError(
                    f"{root}: more than {MOST_BYTES >> 20} MB to copy with {os.fsdecode(path)!r}; "
                    "name what is not code in .gitignore"
                )
            kind = "program" if os.access(at, os.X_OK) else "file"
            yield File(path=path, kind=kind, content=Path(os.fsdecode(at)).read_bytes())
        except (FileNotFoundError, IsADirectoryError):
            # Deleted but still tracked, or a repository of its own.
            continue


def _listed(root: Path) -> list[bytes]:
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others"]
    try:
        done = subprocess.run(
            [*command, "--exclude-standard"],
            capture_output=True,
            check=True,
            env=without_git_variables(),
        )
    except FileNotFoundError:
        raise ConfigError("no git here to list the tree with; load its module") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise ConfigError(
            f"{root}: git cannot list the tree: {said}\n"
            "submit from a clone, or with sbatch, which runs the folder as it is"
        ) from None
    return sorted(set(done.stdout.split(b"\0")[:-1]))


def _digest(files: list[File], runs: Version | None) -> str:
    total = hashlib.sha256((runs.commit if runs else "").encode())
    for file in files:
        for part in (file.path, file.kind.encode(), file.content):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()[:16]


def _complete(folder: Path, tree: Tree) -> None:
    for file in tree.files:
        at = folder / os.fsdecode(file.path)
        if not at.is_symlink() and not at.exists():
            _write(at, file)
    sync_folder(folder)


def _write(at: Path, file: File) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    beside = at.with_name(f".{secrets.token_hex(8)}.partial")
    if file.kind == "link":
        beside.symlink_to(os.fsdecode(file.content))
    else:
        with beside.open("wb") as stream:
            stream.write(file.content)
            stream.flush()
            os.fsync(stream.fileno())
        beside.chmod(0o500 if file.kind == "program" else 0o400)
    beside.replace(at)
