"""The frozen results by file, and how what commands print now differs from them."""

import difflib
import re
from pathlib import Path

from tests.corpus import catalogue
from tests.golden import archives, ends, programs
from tests.golden.surroundings import surroundings

GOLDEN = Path(__file__).parent
# A section of a file: "=== NAME" and its lines.
_SECTION = re.compile(r"^=== (.*)\n((?:(?!=== ).*\n)*)", re.M)


def archive_file(archive: Path) -> str:
    """Return the golden file of an archive."""
    return f"archives/{archive.name.removesuffix('.tar.xz')}.txt"


def archive_text(archive: Path, folder: Path) -> str:
    """Return what the commands print now about an archive."""
    with surroundings(folder):
        return archives.text(archive)


def end_texts(folder: Path) -> dict[str, str]:
    """Return what is printed now about the planted runs, by golden file."""
    with surroundings(folder) as place:
        found = ends.texts(place)
    return {
        f"ends/{group}.txt": "".join(f"=== {run.name}\n{found[run.name]}" for run in planted)
        for group, planted in catalogue.GROUPS.items()
    }


def program_text(folder: Path) -> str:
    """Return how programs end now."""
    with surroundings(folder) as place:
        return programs.text(place)


def all_texts(folder: Path) -> dict[str, str]:
    """Return every golden file with the text that it would have now."""
    for name in ("archives", "ends", "programs"):
        (folder / name).mkdir()
    with surroundings(folder / "archives"):
        found = {archive_file(path): archives.text(path) for path in archives.ARCHIVES}
    return found | end_texts(folder / "ends") | {"programs.txt": program_text(folder / "programs")}


def difference(name: str, text: str) -> str:
    """Return the unified diff from a golden file to a text, by section; empty if they are equal."""
    file = GOLDEN / name
    frozen = file.read_text(encoding="utf-8") if file.exists() else ""
    if frozen == text:
        return ""
    before, after = (dict(_SECTION.findall(one)) or {"": one} for one in (frozen, text))
    parts = []
    for section in {**before, **after}:
        old, new = (one.get(section, "").splitlines(keepends=True) for one in (before, after))
        label = f"{name}: {section}" if section else name
        parts += difflib.unified_diff(old, new, f"frozen {label}", f"now {label}")
    return "".join(parts) or f"{name}: sections in another order\n"
