"""`render`: Markdown pages that are made from runs."""

import argparse
from pathlib import Path

from analysis.table import remark

DOC = "bring Markdown pages up to date: carry out the analysis commands that stand in them"
EXAMPLE = "python -m analysis render docs/studies/a.md"


def options(sub: argparse.ArgumentParser) -> None:
    """Whether to write."""
    sub.add_argument("--check", action="store_true", help="change nothing; exit 1 where one is old")


def act(asked: argparse.Namespace) -> int:
    """Rewrite the outputs in each page; 2 where a command in one fails."""
    from analysis.__main__ import main
    from analysis.markdown import renewed, without_outputs
    from configs.errors import Unreadable

    def look(words: list[str]) -> int:
        return main(without_outputs(words))

    old = 0
    for path in map(Path, asked.paths):
        try:
            before = path.read_text(encoding="utf-8")
            after, remarks = renewed(before, look if asked.check else main)
            if after != before and not asked.check:
                path.write_text(after, encoding="utf-8")
        except UnicodeDecodeError:
            raise Unreadable(f"{path}: is no text") from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise Unreadable(f"{path}: {why}") from None
        except Unreadable as error:
            raise Unreadable(f"{path}: {error}") from None
        remark(f"{path}: {line}" for line in remarks)
        print(f"{path}: {'as it was' if after == before else 'old' if asked.check else 'renewed'}")
        old += after != before
    return 1 if asked.check and old else 0
