"""`python -m train RUN` under torchrun: one attempt at a run, of whatever kind it is.

`python -m train COMMAND --help` tells of the other commands:
  score RUN            judge the samples of a run on digits
  sample RUN           draw many images from a run into one .npz, alone or under torchrun
  fid FILE REFERENCE   the Frechet distance of sampled images from a reference
  export RUN FILE      write the newest weights to one safetensors file
  seed CONFIG FOLDER   write the weights that a config's seed draws, for any layout to start from
  forecast CONFIG      say what a run will need and do on which GPU, before it is queued
  gns CHECKPOINTS      measure the noise of the gradient over saved checkpoints
  digits FOLDER        write the digits as PNG files, a folder per class
  doctor PATH          say what is wrong with a latent store or an image folder

Example: torchrun --standalone --nproc-per-node=2 -m train logs/digits-1120-093000-1a2b
"""

import sys

from configs.command import run_command

_COMMANDS = {
    "score": "train.evaluate.digits_score",
    "sample": "train.evaluate.sample_set",
    "fid": "train.evaluate.fid",
    "export": "train.weights.export",
    "seed": "train.weights.seed",
    "digits": "train.data.digits",
    "doctor": "train.data.doctor",
    "forecast": "train.forecast.command",
    "gns": "train.gradient_noise.offline",
}
# What carries out an attempt at a run of each kind.
_KINDS = {
    "pretrain": "train.pretrain.run",
    "encode": "train.encode",
    "sample": "train.evaluate.sample_set",
    "gns": "train.gradient_noise.offline",
}


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and carry it out; 0 good, 1 no, 2 misuse."""
    return run_command(
        arguments,
        engine="train",
        about=__doc__,
        commands=_COMMANDS,
        module_of=lambda run, config: _KINDS.get(config.kind),
    )


if __name__ == "__main__":
    sys.exit(main())
