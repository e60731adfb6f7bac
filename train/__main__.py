"""`python -m train RUN` under torchrun: one attempt at a run, of whatever kind it is.

`python -m train COMMAND --help` tells of the other commands:
  score RUN            judge the samples of a run on digits
  sample RUN           draw many images from a run into one .npz, alone or under torchrun
  fid FILE REFERENCE   the Frechet distance of sampled images from a reference
  export RUN FILE      write the newest weights to one safetensors file
  seed CONFIG FOLDER   write the weights that a config's seed draws, for any layout to start from
  forecast CONFIG      say what a run will need and do on which GPU, before it is queued
  gns CHECKPOINTS      measure the noise of the gradient over saved checkpoints
  doctor PATH          say what is wrong with a latent store or an image folder

Example: torchrun --standalone --nproc-per-node=2 -m train logs/digits-1120-093000-1a2b
"""

import argparse
import importlib
import sys
from pathlib import Path

from configs.disk import make_private
from configs.run import open_run
from configs.yaml12 import ConfigError

# Imported when asked for: help answers at once.
_COMMANDS = {
    "score": "train.score",
    "sample": "train.sample_set",
    "fid": "train.fid",
    "export": "train.export",
    "seed": "train.seed",
    "doctor": "train.data.doctor",
    "forecast": "train.forecast.command",
    "gns": "train.gns.offline",
}
# What carries out an attempt at a run of each kind.
_KINDS = {
    "pretrain": "train.pretrain",
    "encode": "train.encode",
    "sample": "train.sample_set",
    "gns": "train.gns.offline",
}


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
        prog="python -m train",
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
    kind = run.config(attempt).kind
    if kind not in _KINDS:
        raise ConfigError(f"{options.run}: its kind is {kind}; `python -m train` does not run it")
    return int(importlib.import_module(_KINDS[kind]).attempt(run, number=attempt))


if __name__ == "__main__":
    sys.exit(main())
