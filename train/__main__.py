"""`python -m train RUN` under torchrun carries out one attempt at a run of any kind.

`ditbench train COMMAND --help` describes the other commands:
  fid FILE REFERENCE   the Frechet distance of sampled images from a reference

Example: torchrun --standalone --nproc-per-node=2 -m train logs/digits-1120-093000-1a2b
"""

import sys

from train.engine.command import run_command

_COMMANDS = {
    "fid": "train.evaluate.fid",
    # For `ditbench check` and `ditbench plan`.
    "check-data": "train.data.check_data",
    "cost": "train.cost.command",
    "measure": "train.cost.measure",
}
# The module that carries out an attempt at a run of each kind.
_KINDS = {
    "pretrain": "train.pretrain.run",
    "encode": "train.encode",
    "sample": "train.evaluate.sample_set",
    "gns": "train.gradient_noise.offline",
}


def main(arguments: list[str] | None = None) -> int:
    """Parse and carry out the command line; return 0 for success, 1 for failure, 2 for misuse."""
    return run_command(
        arguments,
        engine="train",
        about=__doc__,
        commands=_COMMANDS,
        module_of=lambda run, config: _KINDS.get(config.kind),
    )


if __name__ == "__main__":
    sys.exit(main())
