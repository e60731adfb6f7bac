"""Snapshot the source tree at submission into `LOGS/.code/`, so that later edits change no job.

A snapshot holds the tracked files and the untracked ones that git does not ignore. Its name is a
hash of the commit and of every file's path, mode and content, so runs of the same tree share one.
The name can be guessed, so a snapshot is used only if nobody else can have written it or change it,
and every job checks it again (docs/security.md).
"""

import hashlib
import os
import secrets
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from configs.disk import sync_folder
from configs.errors import ConfigError
from configs.schema import Command, Run
from runs.attempt.program import TREE
from runs.code_version import read_version, without_git_variables
from runs.folder import ROOT

# A data set that lies in the checkout and is not ignored must not be copied at every edit.
MAX_BYTES = 256 * 2**20
# The checksums of a snapshot's files, as `sha256sum --check` reads them.
SUMS = ".snapshot.sha256"


@dataclass(frozen=True, kw_only=True)
class File:
    """A file or symbolic link of the tree: its relative path and its bytes, or its target."""

    path: bytes
    kind: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The contents of a snapshot, the SHA-256 of its file of checksums, and a program beside it."""

    digest: str
    files: list[File]
    program: "Tree | None" = None

    def folder(self, logs: Path) -> Path:
        """Return the folder of the snapshot, which may not exist yet."""
        return logs / ".code" / self.digest[:16]

    def check(self, logs: Path) -> str:
        """Return the line of a batch script that ends a job whose snapshot is another's or changed.

        It runs nothing of the snapshot: the script, which Slurm keeps, holds the expected hash.
        """
        folder = shlex.quote(str(self.folder(logs)))
        before = f"{self.program.check(logs)}; " if self.program else ""
        return (
            f"{before}if ! {{ cd {folder} && [[ -O . && -O .. ]] && "
            f"sha256sum --check --status - {SUMS} <<<'{self.digest}  {SUMS}'; }}; then "
            f"echo {folder}: not the code that was submitted, submit again >&2; exit 2; fi"
        )

    def exports(self, logs: Path) -> dict[str, str]:
        """Return the variable that tells a job where the snapshot of its program is."""
        return {TREE: str(self.program.folder(logs))} if self.program else {}


def read_trees(config: Run) -> Tree:
    """Read this checkout, with the tree of the program that a `command` config names."""
    tree = read_tree(ROOT)
    if not isinstance(config, Command):
        return tree
    root = Path(str(config.folder))
    return replace(tree, program=read_tree(root, _named(root, config.files)))


def _named(root: Path, names: list[str]) -> list[bytes]:
    """Return the paths of the named files and of all files in the named folders."""
    found: set[str] = set()
    for name in names:
        at = root / name
        if not at.exists():
            raise ConfigError(f"files: {at}: no such file; correct its name")
        inside = [path for path in at.rglob("*") if path.is_file()] if at.is_dir() else [at]
        found |= {os.path.relpath(path, root) for path in inside}
    if outside := [name for name in found if name.startswith("..")]:
        raise ConfigError(f"files: {outside[0]}: not below {root}; set folder to one above both")
    return sorted(map(os.fsencode, found))


def read_tree(root: Path, names: Sequence[bytes] = ()) -> Tree:
    """Read `names` in a folder, by default all that git lists; raise `ConfigError` if git fails."""
    files = list(_files(root, names or _listed(root)))
    code = read_version(root)
    if code is not None:
        files.append(File(path=b"version.json", kind="file", content=code.to_json().encode()))
    sums = b"".join(map(_sum_lines, files))
    files.append(File(path=SUMS.encode(), kind="file", content=sums))
    return Tree(digest=hashlib.sha256(sums).hexdigest(), files=files)


def save(tree: Tree, logs: Path) -> Path:
    """Write the snapshot and return its folder; concurrent launchers may write the same one.

    Raise `ConfigError` if another user could have written it, or if it was changed.
    """
    if tree.program:
        save(tree.program, logs)
    folder = tree.folder(logs)
    logs.mkdir(parents=True, exist_ok=True)
    _make_folder(folder.parent)
    for parent in (logs, folder.parent):
        _keep_from_others(parent)
    if not folder.exists():
        partial = folder.parent / f".{tree.digest}.{secrets.token_hex(4)}.partial"
        _write_missing(partial, tree)
        try:
            partial.rename(folder)
        except OSError:
            # Another launcher was first.
            shutil.rmtree(partial)
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in names)):
            _check_owner(path)
    # Scratch space is purged file by file.
    _write_missing(folder, tree)
    for file in tree.files:
        at = folder / os.fsdecode(file.path)
        is_link = file.kind == "link"
        if at.is_symlink() != is_link or file.content != (
            os.readlink(os.fsencode(at)) if is_link else at.read_bytes()
        ):
            raise ConfigError(f"{at}: changed since the snapshot was made; remove {folder}")
    return folder


def _keep_from_others(folder: Path) -> None:
    """Set the sticky bit, so that who may write to our folder cannot rename what is in it."""
    status = folder.lstat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o022 and stat.S_ISDIR(status.st_mode):
        folder.chmod(stat.S_IMODE(status.st_mode) | stat.S_ISVTX)
    _check_owner(folder)


def _check_owner(path: Path) -> None:
    """Raise `ConfigError` for a file or folder that another user made or can replace."""
    status = path.lstat()
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"{path}: belongs to another user (uid {status.st_uid}), who could run code as you; "
            "remove it, or set LOGS to a folder of your own"
        )
    is_open = not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o022
    if is_open and not status.st_mode & stat.S_ISVTX:
        raise ConfigError(f"{path}: others may write to it; chmod -R go-w, or remove it")


def _files(root: Path, paths: Iterable[bytes]) -> Iterator[File]:
    size = 0
    for path in paths:
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
    command = ["git", "-C", str(root), "ls-files", "-z"]
    command += ["--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, env=without_git_variables())
    except FileNotFoundError:
        raise ConfigError("git not found, which lists the tree; load its module") from None
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace").strip()
        raise ConfigError(
            f"{root}: git cannot list the tree: {message}\n"
            "submit from a clone, or with sbatch, which runs the folder as it is; for a config of "
            "kind command, list its files"
        ) from None
    return sorted(set(done.stdout.split(b"\0")[:-1]))


def _sum_lines(file: File) -> bytes:
    """Return a file's checksum as sha256sum writes it, and its kind as a comment."""
    total = hashlib.sha256(file.content).hexdigest().encode()
    escaped = file.path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    line = total + b"  ./" + escaped + b"\n"
    if file.kind == "link":
        return b"# link " + line
    # A backslash in front marks a name with escapes.
    line = line if escaped == file.path else b"\\" + line
    return (b"# program\n" if file.kind == "program" else b"") + line


def _write_missing(folder: Path, tree: Tree) -> None:
    for file in tree.files:
        at = folder / os.fsdecode(file.path)
        if not at.is_symlink() and not at.exists():
            _write(at, file)
    sync_folder(folder)


def _make_folder(folder: Path) -> None:
    """Make a folder to which only its owner may write, whatever the umask, and those above it."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(0o755, exist_ok=True)


def _write(at: Path, file: File) -> None:
    _make_folder(at.parent)
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
