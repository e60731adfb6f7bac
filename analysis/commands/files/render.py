"""`render`: Markdown pages whose tables come from runs."""

import argparse
from pathlib import Path

from analysis.markdown import render, without_outputs
from analysis.table import remark
from configs.errors import Unreadable

EXAMPLE = "ditbench render docs/studies/a.md"


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
            before = path.read_text(encoding="utf-8")
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
