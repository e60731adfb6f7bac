"""Read runs from an archive: one that `archive` wrote, or any tar of run folders."""

import atexit
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path, PurePosixPath

from configs.errors import Unreadable

ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz")
MOST_FILES, MOST_BYTES = 100_000, 1 << 31


def is_archive(path: Path) -> bool:
    """Whether a file has the name of a tar that can be read."""
    return path.name.endswith(ENDINGS) and path.is_file()


@cache
def unpacked(path: Path) -> Path:
    """Unpack the plain files of an archive into a folder that is removed when the process ends.

    Raise `Unreadable` if it is no archive, holds more than logs do, or names a file outside.
    """
    folder = Path(tempfile.mkdtemp(prefix="ditbench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    left = MOST_BYTES
    try:
        with tarfile.open(path) as archive:
            for number, member in enumerate(archive):
                left -= member.size
                if number >= MOST_FILES or left < 0:
                    raise Unreadable(
                        f"{path}: too large for an archive of logs; unpack it yourself"
                    )
                if member.isfile():
                    _write(archive, member, folder, path)
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
