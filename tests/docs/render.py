"""Update Markdown pages whose tables are the output of the commands above them.

    python -m tests.docs.render [--check] docs/studies/a.md

A block of such a page is

    ```console
    $ python -m analysis cells docs/measurements/a-small.tar.xz
    its output
    ```

so a reader sees where every figure comes from, and a program can reproduce it.
"""

import argparse
import contextlib
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.__main__ import main as analyse
from configs.errors import Unreadable
from configs.terminal import guarded

_BLOCK = re.compile(r"^```console\n\$ (python -m analysis (?:.*\\\n)*.*)\n((?:.*\n)*?)```$", re.M)
Command = Callable[[list[str]], int]


def main(arguments: list[str]) -> int:
    """Update each page, or with `--check` only compare; return 1 if one is out of date."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.render", description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if outdated")
    options = parser.parse_args(arguments)
    return guarded(lambda: max(_update(page, check=options.check) for page in options.pages))


def _update(page: Path, *, check: bool) -> int:
    before = page.read_text(encoding="utf-8")
    command = (lambda words: analyse(without_outputs(words))) if check else analyse
    try:
        after, remarks = render(before, command)
    except Unreadable as error:
        raise Unreadable(f"{page}: {error}") from None
    if after != before and not check:
        page.write_text(after, encoding="utf-8")
    for line in remarks:
        print(f"{page}: {line}", file=sys.stderr)
    changed = "out of date" if check else "updated"
    print(f"{page}: {'unchanged' if after == before else changed}")
    return int(check and after != before)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A command of a page and its output there; `span` is the position of the output."""

    words: tuple[str, ...]
    output: str
    span: tuple[int, int]

    @property
    def spelled(self) -> str:
        """Return the command on one line."""
        return f"python -m analysis {shlex.join(self.words)}"

    def missing(self) -> list[str]:
        """Return the inputs that do not exist."""
        outputs = [self.words[n + 1] for n, word in enumerate(self.words[:-1]) if _is_output(word)]
        named = [word for word in self.words[1:] if "/" in word and not word.startswith("-")]
        return [word for word in named if word not in outputs and not Path(word).exists()]


def _is_output(word: str) -> bool:
    return word in ("--plot", "--out")


def without_outputs(words: Sequence[str]) -> list[str]:
    """Return a command's words without the files that it would write."""
    pairs = zip(words, ["", *words], strict=False)
    return [word for word, before in pairs if not _is_output(word) and not _is_output(before)]


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page, in order."""
    return [
        Block(
            words=tuple(shlex.split(found[1].replace("\\\n", " "))[3:]),
            output=found[2],
            span=found.span(2),
        )
        for found in _BLOCK.finditer(text)
    ]


def render(text: str, command: Command) -> tuple[str, list[str]]:
    """Return a page with the current output of its commands, and remarks on unchanged blocks.

    `command` runs `python -m analysis`. Raise `Unreadable` if one fails.
    """
    parts, at, remarks = [], 0, []
    for block in blocks(text):
        parts.append(text[at : block.span[0]])
        if missing := block.missing():
            remarks.append(f"left as it is: {block.spelled}: {', '.join(missing)} does not exist")
            parts.append(block.output)
        else:
            parts.append(_run(block, command))
        at = block.span[1]
    return "".join([*parts, text[at:]]), remarks


def _run(block: Block, command: Command) -> str:
    """Return the output of the command of a block."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _misuse(block):
        code = command(list(block.words))
        if code == 2:
            raise Unreadable(f"{block.spelled}: {err.getvalue().strip()}")
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


@contextlib.contextmanager
def _misuse(block: Block) -> Iterator[None]:
    """Turn an exit of argparse into an error."""
    try:
        yield
    except SystemExit:
        raise Unreadable(f"{block.spelled}: is not a command of analysis") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
