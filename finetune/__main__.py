"""`python -m finetune RUN` under torchrun: one attempt at a fine-tuning or at drawing from one.

`python -m finetune COMMAND --help` tells of the other commands:
  doctor FOLDER        say what is wrong with a folder of captioned images
  tiny FOLDER          make a tiny random Flux, five images with captions, and an assistant LoRA

Example: torchrun --standalone --nproc-per-node=1 -m finetune logs/tiny-1120-093000-1a2b
"""

import sys

from configs.command import carry_out_command
from configs.run.folder import RunFolder
from configs.schema import Finetune, Infer, Run
from finetune.engine import engine_of

_COMMANDS = {"doctor": "finetune.doctor", "tiny": "finetune.tiny_flux"}
_ENGINES = {"aitoolkit": "finetune.aitoolkit.run", "embedded": "finetune.native.run"}


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and carry it out; 0 good, 1 no, 2 misuse."""
    return carry_out_command(
        arguments, engine="finetune", about=__doc__, commands=_COMMANDS, module_of=_module_of
    )


def _module_of(run: RunFolder, config: Run) -> str | None:
    if isinstance(config, Finetune):
        return _ENGINES[engine_of(run, config)]
    return "finetune.infer" if isinstance(config, Infer) else None


if __name__ == "__main__":
    sys.exit(main())
