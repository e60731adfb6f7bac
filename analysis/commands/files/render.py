"""`render`: Markdown pages whose tables are the output of the commands above them.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.table import remark
from configs.errors import Unreadable
from configs.files import read_text

EXAMPLE = "ditbench render docs/studies/a.md"
_BLOCK = re.compile(r"^```console\n\$ (python -m analysis (?:.*\\\n)*.*)\n((?:.*\n)*?)```$", re.M)
Command = Callable[[list[str]], int]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the check."""
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a page is out of date"
    )


def run(args: argparse.Namespace) -> int:
    """Update the outputs in each page; raise `Unreadable` if a command in one fails."""

    def dry(words: list[str]) -> int:
        return int(args.analysis(without_outputs(words)))

    outdated = 0
    for path in map(Path, args.paths):
        try:
            before = read_text(path)
            after, remarks = render(before, dry if args.check else args.analysis)
            if after != before and not args.check:
                path.write_text(after, encoding="utf-8")
        except UnicodeDecodeError:
            raise Unreadable(f"{path}: not a text file") from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise Unreadable(f"{path}: {why}") from None
        except Unreadable as error:
            raise Unreadable(f"{path}: {error}") from None
        remark(f"{path}: {line}" for line in remarks)
        changed = "out of date" if args.check else "updated"
        print(f"{path}: {'unchanged' if after == before else changed}")
        outdated += after != before
    return 1 if args.check and outdated else 0


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
