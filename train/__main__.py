"""`python -m train RUN` under torchrun: one attempt at a pretraining run.

Example: torchrun --standalone --nproc-per-node=2 -m train logs/digits-1120-093000-1a2b
"""

import argparse
import sys
from pathlib import Path

from configs.run import RunFolder, is_run


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and carry it out; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m train", description=__doc__)
    parser.add_argument("run", type=Path, help="run folder (python -m configs open makes one)")
    parser.add_argument("--attempt", type=int, help="number of the attempt; the newest by default")
    options = parser.parse_args(arguments)
    if not is_run(options.run):
        parser.error(f"{options.run}: not a run folder; `python -m configs open CONFIG` makes one")
    run = RunFolder(options.run)
    attempt = options.attempt or max(run.attempts(), default=0)
    if not attempt or not run.attempt(attempt).is_dir():
        parser.error(f"{options.run}: no such attempt; `python -m configs open` begins one")
    # Imported late: help answers at once.
    from train.pretrain import pretrain

    return pretrain(run, attempt=attempt)


if __name__ == "__main__":
    sys.exit(main())
