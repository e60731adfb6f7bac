"""`python -m train RUN` under torchrun: one attempt at a run that pretrains or encodes.

`python -m train score RUN` judges the samples of a run on digits; `python -m train doctor PATH`
says what is wrong with a latent store or an image folder.

Example: torchrun --standalone --nproc-per-node=2 -m train logs/digits-1120-093000-1a2b
"""

import argparse
import sys
from pathlib import Path

from configs.disk import make_private
from configs.run import RunFolder, is_run
from configs.schema import Encode
from configs.yaml12 import ConfigError


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and carry it out; 0 good, 1 no, 2 misuse."""
    arguments = sys.argv[1:] if arguments is None else arguments
    make_private()
    try:
        if arguments[:1] == ["score"]:
            return _score(arguments[1:])
        if arguments[:1] == ["doctor"]:
            # Imported late: help answers at once.
            from train.data.doctor import main as doctor

            return doctor(arguments[1:])
        return _train(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2


def _parser(name: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run folder")
    return parser


def _train(arguments: list[str]) -> int:
    parser = _parser("python -m train", __doc__)
    parser.add_argument("--attempt", type=int, help="number of the attempt; the newest by default")
    options = parser.parse_args(arguments)
    run = _run_folder(options.run)
    attempt = options.attempt or max(run.attempts(), default=0)
    if not attempt or not run.attempt(attempt).is_dir():
        raise ConfigError(f"{options.run}: no such attempt; `python -m configs open` begins one")
    # Imported late: help answers at once.
    if isinstance(run.config(attempt), Encode):
        from train.encode import run_encode

        return run_encode(run, attempt=attempt)
    from train.pretrain import pretrain

    return pretrain(run, attempt=attempt)


def _score(arguments: list[str]) -> int:
    """Print how good a run's samples are, and record it."""
    parser = _parser("python -m train score", "Judge the samples of a run on digits.")
    parser.add_argument("--per-class", type=int, default=50, help="samples of each digit")
    options = parser.parse_args(arguments)
    if options.per_class < 2:
        raise ConfigError("--per-class: a variance needs at least 2 samples")
    from train.score import score

    result = score(_run_folder(options.run), per_class=options.per_class)
    print(
        f"{result.samples} samples after {result.step} steps: {result.recognised:.1%} recognised "
        f"by a classifier of held-out digits (which knows {result.classifier:.1%} of real ones), "
        f"within-class variance {result.variance:.2f} of the real"
    )
    return 0


def _run_folder(path: Path) -> RunFolder:
    if not is_run(path):
        raise ConfigError(f"{path}: not a run folder; `python -m configs open CONFIG` makes one")
    return RunFolder(path)


if __name__ == "__main__":
    sys.exit(main())
