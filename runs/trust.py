"""Decide whether a folder may be continued, resumed, cancelled, or run from.

A config names commands, and code and compiled kernels run as they lie: whoever can write them, or
put another folder in their place, runs code as you (docs/security.md).
"""

import grp
import os
import pwd
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from configs.errors import ConfigError


def check_own(folder: Path, *, deep: bool = False) -> None:
    """Raise `ConfigError` if another user made a folder or what is in it, or can replace them.

    Only you and root may own them and the folders above, and only those above may be open to
    others, with the sticky bit. The users and groups that the site names in `TRUSTED` may own the
    folders above, and write to them. What lies in folders inside counts if `deep`.
    """
    check_above(folder)
    named, path = folder.absolute(), folder.resolve()
    for entry in (named, path):
        _check(entry)
    for place, folders, files in os.walk(path):
        for name in (*folders, *files):
            _check(Path(place, name))
        if not deep:
            break


def check_above(path: Path) -> None:
    """Raise `ConfigError` if another user can replace what is, or will be, at a path."""
    for above in dict.fromkeys((*path.absolute().parents, *path.resolve().parents)):
        _check(above, is_above=True)


def keep_from_others(folder: Path) -> None:
    """Set the sticky bit, so that who may write to our folder cannot rename what is in it."""
    status = folder.lstat()
    if status.st_uid == os.geteuid() and _is_open(status) and stat.S_ISDIR(status.st_mode):
        folder.chmod(stat.S_IMODE(status.st_mode) | stat.S_ISVTX)


def _check(path: Path, *, is_above: bool = False) -> None:
    try:
        status = path.lstat()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be examined: {error.strerror}") from None
    users, groups = trusted() if is_above else (frozenset[int](), frozenset[int]())
    fix = "remove it, or set LOGS to a folder of your own"
    if is_above:
        fix = "set LOGS to a folder elsewhere, or name who may in TRUSTED of env/sites/<cluster>.sh"
    if status.st_uid not in {os.geteuid(), 0, *users}:
        owner = f"belongs to another user (uid {status.st_uid})"
        raise ConfigError(f"{path}: {owner}, who could run code as you; {fix}")
    is_sticky = is_above and bool(status.st_mode & stat.S_ISVTX)
    if _is_open(status, groups) and not is_sticky:
        raise ConfigError(
            f"{path}: others may write to it, and could run code as you; chmod go-w, or {fix}"
        )


def _is_open(status: os.stat_result, groups: frozenset[int] = frozenset()) -> bool:
    """Return whether others may write; a link has no mode, and a private group no others."""
    is_ours = status.st_gid == private_group() or status.st_gid in groups
    closed_to = 0o002 if is_ours else 0o022
    return not stat.S_ISLNK(status.st_mode) and bool(status.st_mode & closed_to)


def trusted() -> tuple[frozenset[int], frozenset[int]]:
    """Return the ids of the users and groups in `TRUSTED`, such as the owner of a lab's storage."""
    users, groups = set[int](), set[int]()
    for name in os.environ.get("TRUSTED", "").split():
        known = len(users) + len(groups)
        with suppress(KeyError):
            users.add(pwd.getpwnam(name).pw_uid)
        with suppress(KeyError):
            groups.add(grp.getgrnam(name).gr_gid)
        if known == len(users) + len(groups):
            raise ConfigError(f"TRUSTED: {name!r} is not the name of a user or a group here")
    return frozenset(users), frozenset(groups)


@cache
def private_group() -> int | None:
    """Return the group of the user's name without other members, as many systems make it."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrnam(name)
    except KeyError:
        return None
    return group.gr_gid if set(group.gr_mem) <= {name} else None
