"""Read runs from an archive: one that `archive` wrote, or any tar of run folders."""

import atexit
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path, PurePosixPath

from configs.errors import Unreadable
from configs.files import open_regular

ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz")
# Each file needs its folders; a run has about five files, eight folders deep at most.
MOST_FILES, MOST_DEPTH, MOST_BYTES = 20_000, 32, 1 << 31
# The archive of each folder that holds the files of one.
_ARCHIVES: dict[str, str] = {}


def as_named(text: str) -> str:
    """Return text in which unpacked folders stand as their archives: `a.tar.xz/cells/x`."""
    for folder, archive in _ARCHIVES.items():
        text = text.replace(folder, archive)
    return text


def archive_of(path: Path) -> Path | None:
    """Return the archive that a path was unpacked from, None for any other path."""
    found = (archive for folder, archive in _ARCHIVES.items() if path.is_relative_to(folder))
    return next(map(Path, found), None)


def in_archive(path: Path) -> Path:
    """Return the unpacked file or folder of `a.tar.xz/cells/x`; any other path as it is."""
    found = (one for one in (path, *path.parents) if one.name.endswith(ENDINGS) and one.is_file())
    archive = next(found, None)
    return unpacked(archive) / path.relative_to(archive) if archive else path


@cache
def unpacked(path: Path) -> Path:
    """Unpack the plain files of an archive into a folder that is removed when the process ends.

    Raise `Unreadable` if it is no archive, holds more than logs do, or names a file outside.
    """
    own = Path(tempfile.mkdtemp(prefix="ditbench-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    folder = own / path.name
    folder.mkdir()
    _ARCHIVES[str(folder)] = str(path)
    left = MOST_BYTES
    try:
        with open_regular(path) as packed, tarfile.open(fileobj=packed) as archive:
            for number, member in enumerate(archive):
                left -= member.size
                if number >= MOST_FILES or left < 0 or member.name.count("/") > MOST_DEPTH:
                    raise Unreadable(
                        f"{path}: too large for an archive of logs (over {MOST_FILES:,} files, "
                        f"{MOST_BYTES >> 30} GiB or {MOST_DEPTH} folders deep); unpack it yourself"
                    )
                if member.isfile():
                    _write(archive, member, folder, path)
    except Unreadable:
        raise
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise Unreadable(f"{path}: a damaged archive ({error})") from None
    return folder


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, source: Path) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise Unreadable(f"{source}: {member.name}: outside the archive's own folder")
    data = archive.extractfile(member)
    assert data is not None
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with data, target.open("xb") as out:
        shutil.copyfileobj(data, out)
