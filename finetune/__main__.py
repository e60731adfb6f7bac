"""`python -m finetune RUN` under torchrun: one attempt at a fine-tuning or at drawing from one.

`python -m finetune COMMAND --help` tells of the other commands:
  doctor FOLDER        say what is wrong with a folder of captioned images
  tiny FOLDER          make a tiny random Flux, five images with captions, and an assistant LoRA

Example: torchrun --standalone --nproc-per-node=1 -m finetune logs/tiny-1120-093000-1a2b
"""

import argparse
import importlib
import sys
from pathlib import Path

from configs.disk import make_private
from configs.run import open_run
from configs.schema import Finetune, Infer
from configs.yaml12 import ConfigError
from finetune.engine import engine_of

# Imported when asked for: help answers at once.
_COMMANDS = {"doctor": "finetune.doctor", "tiny": "finetune.tiny"}


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and carry it out; 0 good, 1 no, 2 misuse."""
    arguments = sys.argv[1:] if arguments is None else arguments
    make_private()
    try:
        if arguments and arguments[0] in _COMMANDS:
            return int(importlib.import_module(_COMMANDS[arguments[0]]).main(arguments[1:]))
        return _attempt(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2


def _attempt(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m finetune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--attempt", type=int, help="number of the attempt; the newest by default")
    options = parser.parse_args(arguments)
    run = open_run(options.run)
    attempt = options.attempt or max(run.attempts(), default=0)
    if not attempt or not run.attempt(attempt).is_dir():
        raise ConfigError(f"{options.run}: no such attempt; `python -m configs open` begins one")
    config = run.config(attempt)
    if isinstance(config, Finetune):
        module = f"finetune.{engine_of(run, config)}"
    elif isinstance(config, Infer):
        module = "finetune.infer"
    else:
        raise ConfigError(
            f"{options.run}: its kind is {config.kind}; `python -m finetune` does not run it"
        )
    return int(importlib.import_module(module).attempt(run, number=attempt))


if __name__ == "__main__":
    sys.exit(main())
