"""Snapshot the source tree at submission into `LOGS/.code/`, so that later edits change no job.

A snapshot holds the tracked files and the untracked ones that git does not ignore. Its name is a
hash of the commit and of every file's path, mode and content, so runs of the same tree share one.
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

# A data set that lies in the checkout and is not ignored must not be copied at every edit.
MAX_BYTES = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class File:
    """A file or symbolic link of the tree: its relative path and its bytes, or its target."""

    path: bytes
    kind: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The contents of a snapshot and their hash."""

    digest: str
    files: list[File]

    def folder(self, logs: Path) -> Path:
        """Return the folder of the snapshot, which may not exist yet."""
        return logs / ".code" / self.digest


def read_tree(root: Path) -> Tree:
    """Read the current tree of a checkout; raise `ConfigError` if git cannot list it."""
    files = list(_files(root))
    code = read_version(root)
    if code is not None:
        files.append(File(path=b"version.json", kind="file", content=code.to_json().encode()))
    return Tree(digest=_digest(files, code), files=files)


def save(tree: Tree, logs: Path) -> Path:
    """Write the snapshot and return its folder; concurrent launchers may write the same one."""
    folder = tree.folder(logs)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = folder.parent / f".{tree.digest}.{secrets.token_hex(4)}.partial"
        _write_missing(partial, tree)
        try:
            partial.rename(folder)
        except OSError:
            # Another launcher was first.
            shutil.rmtree(partial)
    # Scratch space is purged file by file.
    _write_missing(folder, tree)
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
            if size > MAX_BYTES:
                raise ConfigError(
                    f"{root}: more than {MAX_BYTES >> 20} MB to copy with {os.fsdecode(path)!r}; "
                    "name what is not code in .gitignore"
                )
            kind = "program" if os.access(at, os.X_OK) else "file"
            yield File(path=path, kind=kind, content=Path(os.fsdecode(at)).read_bytes())
        except (FileNotFoundError, IsADirectoryError):
            # Deleted but still tracked, or a nested repository.
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
        raise ConfigError("git not found, which lists the tree; load its module") from None
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace").strip()
        raise ConfigError(
            f"{root}: git cannot list the tree: {message}\n"
            "submit from a clone, or with sbatch, which runs the folder as it is"
        ) from None
    return sorted(set(done.stdout.split(b"\0")[:-1]))


def _digest(files: list[File], code: Version | None) -> str:
    total = hashlib.sha256((code.commit if code else "").encode())
    for file in files:
        for part in (file.path, file.kind.encode(), file.content):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()[:16]


def _write_missing(folder: Path, tree: Tree) -> None:
    for file in tree.files:
        at = folder / os.fsdecode(file.path)
        if not at.is_symlink() and not at.exists():
            _write(at, file)
    sync_folder(folder)


def _write(at: Path, file: File) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    partial = at.with_name(f".{secrets.token_hex(8)}.partial")
    if file.kind == "link":
        partial.symlink_to(os.fsdecode(file.content))
    else:
        with partial.open("wb") as stream:
            stream.write(file.content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.chmod(0o500 if file.kind == "program" else 0o400)
    partial.replace(at)
