"""Write the frozen results anew, or print how they differ.

python -m tests.golden            print the differences; exit with 1 if there are any
python -m tests.golden --write    write them; commit them with the reason of each change
"""

import sys
import tempfile
from pathlib import Path

from tests.golden.frozen import GOLDEN, all_texts, difference


def main(words: list[str]) -> int:
    """Compare or write all golden files; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        found = all_texts(Path(folder))
    if "--write" in words:
        for old in GOLDEN.rglob("*.txt"):
            old.unlink()
        for name, text in found.items():
            (GOLDEN / name).parent.mkdir(exist_ok=True)
            (GOLDEN / name).write_text(text, encoding="utf-8")
        return 0
    shown = "".join(difference(name, text) for name, text in found.items())
    print(shown, end="")
    return int(bool(shown))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
