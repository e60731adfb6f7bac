"""`python -m finetune RUN` under torchrun: one attempt at a fine-tuning run or an infer run.

Other commands (`ditbench finetune COMMAND --help`):
  check-data FOLDER    check a folder of captioned images
  tiny FOLDER          make a tiny random Flux, five captioned images and an assistant LoRA

Example: torchrun --standalone --nproc-per-node=1 -m finetune logs/tiny-1120-093000-1a2b
"""

import os
import sys

from configs.command import run_command
from configs.run.folder import RunFolder
from configs.schema import Finetune, Infer, Run

_COMMANDS = {"check-data": "finetune.check_data", "tiny": "finetune.tiny_flux"}
_ENGINES = {"aitoolkit": "finetune.aitoolkit.run", "embedded": "finetune.native.run"}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 for success, 1 for failure, 2 for misuse."""
    return run_command(
        arguments, engine="finetune", about=__doc__, commands=_COMMANDS, module_of=_module_of
    )


def _module_of(run: RunFolder, config: Run) -> str | None:
    if isinstance(config, Finetune):
        return _ENGINES[engine_of(run, config)]
    return "finetune.infer" if isinstance(config, Infer) else None


def engine_of(run: RunFolder, config: Finetune) -> str:
    """Return the engine of a run, `aitoolkit` or `embedded`.

    With `engine: auto` a run keeps the engine that trained it before: every attempt records its
    `engine` in the manifest. A new run uses ai-toolkit if `AI_TOOLKIT` names its folder and the
    run asks for one GPU, because ai-toolkit uses only one.
    """
    if config.engine != "auto":
        return config.engine
    for entry in run.entries():
        if "engine" in entry:
            return entry["engine"]
    has_one_rank = config.resources.world == 1
    return "aitoolkit" if os.environ.get("AI_TOOLKIT") and has_one_rank else "embedded"


if __name__ == "__main__":
    sys.exit(main())
