"""`python -m finetune RUN` under torchrun: one attempt at a fine-tuning run or an infer run.

Other commands (`ditbench finetune COMMAND --help`):
  tiny FOLDER          make a tiny random Flux and five captioned images

Example: torchrun --standalone --nproc-per-node=1 -m finetune logs/tiny-1120-093000-1a2b
"""

import sys

from configs.checks.aitoolkit import engine_of
from configs.schema import Finetune, Infer, Run
from runs.folder import RunFolder
from train.engine.command import run_command

_COMMANDS = {
    # For `ditbench check`.
    "check-data": "finetune.check_data",
    "tiny": "finetune.tiny_flux",
}
_ENGINES = {"aitoolkit": "finetune.aitoolkit.run", "embedded": "finetune.native.run"}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 for success, 1 for failure, 2 for misuse."""
    return run_command(
        arguments, engine="finetune", about=__doc__, commands=_COMMANDS, module_of=_module_of
    )


def _module_of(run: RunFolder, config: Run) -> str | None:
    if isinstance(config, Finetune):
        # Imported here because torch takes seconds, and help should answer at once.
        from train.engine.distributed import world_size

        return _ENGINES[engine_of(config, world=world_size(), before=run.engine())]
    return "finetune.infer" if isinstance(config, Infer) else None


if __name__ == "__main__":
    sys.exit(main())
