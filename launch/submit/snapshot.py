"""Snapshot the source tree at submission into `LOGS/.code/`, so that later edits change no job.

A snapshot holds the tracked files and the untracked ones that git does not ignore. Its name is a
digest of the commit and of all names, links and contents, so runs of the same tree share one. The
name can be guessed, so a snapshot is used only if nobody else can have written it or change it, and
every job computes the digest again (docs/security.md).
"""

import hashlib
import json
import os
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from configs.errors import ConfigError
from runs.code_version import git, read_version, run_git
from runs.trust import check_own, keep_from_others, private_group, trusted

# A data set that lies in the checkout and is not ignored must not be copied at every edit.
MAX_BYTES = 256 * 2**20
# The digest in shell, of a snapshot's folder: names with the targets of links and a * for programs,
# then the checksums of the files. What Python compiles may differ.
_DIGEST = r"""export LC_ALL=C; {
find . ! -type d ! -path '*/__pycache__/*' -printf '%p %l' \
  \( ! -type f -o ! -perm -100 -o -printf '*' \) -printf '\0' | sort -z
find . -type f ! -path '*/__pycache__/*' -print0 | sort -z |
  xargs -0 sha256sum | tr -d '\134' | cut -c -64
} | sha256sum"""


@dataclass(frozen=True, kw_only=True)
class File:
    """A file or symbolic link of the tree: its relative path and its bytes, or its target."""

    path: bytes
    kind: str
    content: bytes


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The contents of a snapshot, and their digest."""

    digest: str
    files: list[File]

    def folder(self, logs: Path) -> Path:
        """Return the folder of the snapshot, which may not exist yet."""
        return logs / ".code" / self.digest[:16]

    def check(self, logs: Path) -> str:
        """Return the line of a batch script that ends a job whose snapshot is another's or changed.

        It runs nothing of the snapshot: the script, which Slurm keeps, holds the digest. What
        Python compiles may differ, but it must be ours like the rest.
        """
        name = shlex.quote(str(self.folder(logs)))
        users, groups = trusted()
        here, above = _strangers([], []), _strangers(sorted(users), sorted(groups))
        conditions = [
            f"[[ $({_DIGEST}) == '{self.digest}  -' ]]",
            f"[[ -z $(find . {here[0]} -o ! -type l \\( {here[1]} \\)) ]]",
            '[[ -z $(at=$PWD; while [[ $at ]]; do at=${at%/*}; find "${at:-/}" -maxdepth 0 '
            f"{above[0]} -o ! -perm -1000 \\( {above[1]} \\); done) ]]",
        ]
        return (
            f"if ! {{ cd {name} && {' && '.join(conditions)}; }}; then "
            f"echo {name}: not the code that was submitted, submit again >&2; exit 2; fi"
        )


def _strangers(users: list[int], groups: list[int]) -> tuple[str, str]:
    """Return the tests of `find` for the files of others, and for those that others may write."""
    owners = " -o ".join(['-uid "$EUID"', "-uid 0", *(f"-uid {user}" for user in users)])
    private = private_group()
    known = [*([] if private is None else [private]), *groups]
    closed = "".join(f" ! -gid {group}" for group in known)
    is_open = f"-perm /002 -o -perm /020{closed}" if known else "-perm /022"
    return f"! \\( {owners} \\)", is_open


def read_tree(root: Path) -> Tree:
    """Read the files of a folder that git lists; raise `ConfigError` if git fails."""
    files = list(_files(root, _listed(root)))
    code = read_version(root)
    if code is not None:
        files.append(
            File(path=b"version.json", kind="file", content=json.dumps(asdict(code)).encode())
        )
    return Tree(digest=_digest(files), files=files)


def _digest(files: Iterable[File]) -> str:
    """Return what `_DIGEST` prints of the files."""
    named = {b"./" + file.path: file for file in files}
    named = {name: named[name] for name in sorted(named) if b"/__pycache__/" not in name}
    links = {name: file.content for name, file in named.items() if file.kind == "link"}
    entries = sorted(
        name + b" " + links.get(name, b"") + b"*" * (file.kind == "program") + b"\0"
        for name, file in named.items()
    )
    sums = (
        hashlib.sha256(file.content).hexdigest().encode() + b"\n"
        for name, file in named.items()
        if name not in links
    )
    return hashlib.sha256(b"".join([*entries, *sums])).hexdigest()


def save(tree: Tree, logs: Path) -> Path:
    """Write the snapshot and return its folder; concurrent launchers may write the same one.

    Raise `ConfigError` if another user could have written it, or if a file was changed or added.
    """
    folder = tree.folder(logs)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for parent in (logs, folder.parent):
        keep_from_others(parent)
    if not folder.exists():
        partial = folder.parent / f".{tree.digest}.{secrets.token_hex(4)}.partial"
        _write_missing(partial, tree)
        try:
            partial.rename(folder)
        except OSError:
            # Another launcher was first.
            shutil.rmtree(partial)
    check_own(folder, deep=True)
    # Scratch space is purged file by file.
    _write_missing(folder, tree)
    done = subprocess.run(["bash", "-c", tree.check(logs)], capture_output=True, check=False)
    if done.returncode:
        raise ConfigError(f"{folder}: changed since the snapshot was made; remove it")
    return folder


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository of the user's to copy: its folder, its files, and what git ignores in it."""

    root: Path
    tree: Tree
    ignored: list[str]

    def copy(self, to: Path) -> None:
        """Copy the files, so that their owner may change them, and link what git ignores."""
        _write_missing(to, self.tree, mode=0o600)
        for name in self.ignored:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).symlink_to(self.root / name)


def read_repository(folder: Path) -> Repository:
    """Read the repository of a folder; raise `ConfigError` if there is none."""
    top = git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        raise ConfigError(f"{folder}: not in a git repository, which --snapshot copies")
    root = Path(top.rstrip("\n"))
    found = _listed(root, "--others", "--ignored", "--directory")
    # Submodules are repositories of their own.
    found += [
        path for path in _listed(root) if os.path.isdir(os.path.join(os.fsencode(root), path))
    ]
    names = [os.fsdecode(path).rstrip("/") for path in found]
    ignored = sorted(name for name in names if not name.endswith("__pycache__"))
    return Repository(root=root, tree=read_tree(root), ignored=ignored)


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


def _listed(root: Path, *flags: str) -> list[bytes]:
    """Return the paths that `git ls-files` lists, by default tracked and new ones."""
    try:
        words = flags or ("--cached", "--others")
        listed = run_git(root, "ls-files", "-z", "--exclude-standard", *words)
    except FileNotFoundError:
        raise ConfigError("git not found, which lists the tree; load its module") from None
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace").strip()
        raise ConfigError(
            f"{root}: git cannot list the tree: {message}\n"
            "submit from a clone, or with sbatch, which runs the folder as it is"
        ) from None
    return sorted(set(listed.split(b"\0")[:-1]))


def _write_missing(folder: Path, tree: Tree, *, mode: int = 0o400) -> None:
    """Write the files that are missing, each at once.

    None is forced to disk: a job that finds another digest after a crash of the machine says so.
    """
    for file in tree.files:
        at = folder / os.fsdecode(file.path)
        if os.path.lexists(at):
            continue
        at.parent.mkdir(parents=True, exist_ok=True)
        partial = at.with_name(f".{secrets.token_hex(8)}.partial")
        if file.kind == "link":
            partial.symlink_to(os.fsdecode(file.content))
        else:
            partial.write_bytes(file.content)
            partial.chmod(mode | (0o100 if file.kind == "program" else 0))
        partial.replace(at)
