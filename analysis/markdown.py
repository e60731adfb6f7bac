"""Markdown pages whose tables are made by the commands that stand above them.

A block of such a page is

    ```console
    $ python -m analysis cells docs/measurements/a-small.tar.xz
    what it printed
    ```

so that a reader sees where every figure comes from, and a program can make it again.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.errors import Unreadable

_BLOCK = re.compile(r"^```console\n\$ (python -m analysis (?:.*\\\n)*.*)\n((?:.*\n)*?)```$", re.M)
Command = Callable[[list[str]], int]


@dataclass(frozen=True, kw_only=True)
class Block:
    """A command of a page and what the page says that it prints; `span` is the latter's place."""

    words: tuple[str, ...]
    said: str
    span: tuple[int, int]

    @property
    def spelled(self) -> str:
        """The command on one line."""
        return f"python -m analysis {shlex.join(self.words)}"

    def missing(self) -> list[str]:
        """The inputs that are not here."""
        outputs = [self.words[n + 1] for n, word in enumerate(self.words[:-1]) if _is_output(word)]
        named = [word for word in self.words[1:] if "/" in word and not word.startswith("-")]
        return [word for word in named if word not in outputs and not Path(word).exists()]


def _is_output(word: str) -> bool:
    return word in ("--plot", "--out")


def without_outputs(words: Sequence[str]) -> list[str]:
    """A command's words but for the files that it would write."""
    pairs = zip(words, ["", *words], strict=False)
    return [word for word, before in pairs if not _is_output(word) and not _is_output(before)]


def blocks(text: str) -> list[Block]:
    """The blocks of a page, in order."""
    return [
        Block(
            words=tuple(shlex.split(found[1].replace("\\\n", " "))[3:]),
            said=found[2],
            span=found.span(2),
        )
        for found in _BLOCK.finditer(text)
    ]


def renewed(text: str, command: Command) -> tuple[str, list[str]]:
    """A page with the outputs that its commands give now, and remarks on what was left as it is.

    `command` carries out `python -m analysis`; `Unreadable` where one fails.
    """
    parts, at, remarks = [], 0, []
    for block in blocks(text):
        parts.append(text[at : block.span[0]])
        if missing := block.missing():
            remarks.append(f"left as it is: {block.spelled}: {', '.join(missing)} is not here")
            parts.append(block.said)
        else:
            parts.append(output(block, command))
        at = block.span[1]
    return "".join([*parts, text[at:]]), remarks


def output(block: Block, command: Command) -> str:
    """What the command of a block prints now."""
    out, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told), _misuse(block):
        code = command(list(block.words))
        if code == 2:
            raise Unreadable(f"{block.spelled}: {told.getvalue().strip()}")
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


@contextlib.contextmanager
def _misuse(block: Block) -> Iterator[None]:
    """What argparse ends a program for, as an error."""
    try:
        yield
    except SystemExit:
        raise Unreadable(f"{block.spelled}: is no command that analysis knows") from None
