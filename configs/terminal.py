"""The terminal: text that is safe on it, readers that leave early (`head`), errors on one line."""

import os
import re
import sys
import traceback
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any

from configs.errors import ConfigError, DataError, Unreadable

# If this variable is set, an unexpected error shows its traceback.
TRACEBACK = "DITBENCH_TRACEBACK"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def printable(text: str, *, keep: str = "") -> str:
    """Escape every character that a terminal could act on (ESC, bidi marks, ...) but for `keep`.

    Names of folders and lines of logs may hold any character.
    """
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def csv_cell(value: Any) -> Any:
    """Return a cell of a CSV file; text that a spreadsheet would run as a formula gets a leading '.

    Numbers, also those in text, are left as they are.
    """
    if not isinstance(value, str):
        return value
    is_formula = value[:1] in _FORMULA and not _NUMBER.fullmatch(value)
    return f"'{printable(value)}" if is_formula else printable(value)


def plural(count: int, noun: str) -> str:
    """Return `1 run`, `2 runs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def command_parser(command: str, about: str | None, examples: str = "") -> ArgumentParser:
    """Return the parser of `ditbench COMMAND`, whose texts keep their lines."""
    return ArgumentParser(
        prog=f"ditbench {command}".rstrip(),
        description=about,
        epilog=examples,
        formatter_class=RawDescriptionHelpFormatter,
    )


def guarded(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; print an error as one line, and return 2.

    The code is 1 if the reader of the command's output left early.
    """
    try:
        code = command()
        sys.stdout.flush()
    except (ConfigError, DataError, Unreadable) as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        is_outside = sys.prefix == sys.base_prefix
        fix = "source env/activate.sh" if is_outside else "env/create.sh installs all modules"
        print(f"{error}; fix: {fix}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The rest of the buffer would raise again when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        print(_in_one_line(error), file=sys.stderr)
        return 2
    return code


def _in_one_line(error: Exception) -> str:
    """Return an error of the operating system as such, and any other as a bug with its place."""
    more = f"{TRACEBACK}=1 shows the traceback"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return printable(f"{error.filename}: {error.strerror} ({more})")
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {str(error)[:200]} ({place.filename}:{place.lineno})"
    return printable(f"unexpected error, a bug in ditbench: {text}; {more}")
