"""The commands of README and docs, line by line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runs.folder import ROOT

PAGES = [Path("README.md"), *sorted(Path("docs").rglob("*.md"))]
PARTS = ("launch", "analysis", "train", "finetune")
# First lines of blocks that show something else: folders, YAML, formulas, keys.
OTHER_BLOCKS = (
    "logs/digits-1120-093000-1a2b/",
    "kind: study",
    "|G|^2 = ",
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A code block of a page without a language, of a console, or indented by four spaces."""

    page: Path
    lines: tuple[str, ...]

    @property
    def is_of_commands(self) -> bool:
        return not self.lines[0].startswith(OTHER_BLOCKS)

    def commands(self) -> list[str]:
        """Its commands without remarks. If lines begin with `$ `, the others are outputs."""
        prompted = [line[2:] for line in self.lines if line.startswith("$ ")]
        typed = (re.split(r"(?:^|\s+)#\s", line)[0].strip() for line in prompted or self.lines)
        return [in_full(line) for line in typed if line]


@cache
def part_of(name: str) -> str:
    """The part that a flat command of `ditbench` belongs to."""
    text = (ROOT / "env/ditbench.sh").read_text(encoding="utf-8")
    cases = re.findall(r"^  ([a-z |]+)\)\s+part=([a-z]+)", text, re.M)
    (part,) = [part for names, part in cases if name in names.split(" | ")]
    return part


def in_full(line: str) -> str:
    """The line with `python -m PART COMMAND` for `ditbench COMMAND` or `ditbench PART COMMAND`."""
    if found := re.match(r"(?:\.venv/bin/)?ditbench ([^\s|]+)", line):
        part = "" if found[1] in PARTS else f"{part_of(found[1])} "
        line = f"python -m {part}{line[found.start(1) :]}"
    return re.sub(r"^python3 ", "python ", line)


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page that can hold commands; a line that ends with a \\ continues."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    found = [inside for language, inside in fences if language in ("", "console")]
    rest = re.sub(r"^```\w*\n.*?^```$", "", text, flags=re.M | re.S)
    found += re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))*)+", rest, re.M)
    for inside in found:
        lines = (re.sub(r"^ {4}", "", line).rstrip() for line in inside.splitlines())
        if kept := tuple(line for line in lines if line):
            yield Block(page=page, lines=kept)


def commands() -> dict[str, list[Path]]:
    """Every command, and the pages that it occurs on."""
    found: dict[str, list[Path]] = {}
    for page in PAGES:
        for block in filter(lambda block: block.is_of_commands, blocks(page)):
            for line in block.commands():
                found.setdefault(line, []).append(page)
    return found
