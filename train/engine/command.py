"""The command line of `train` and `finetune`: run an attempt, or one of the other commands."""

import importlib
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from pathlib import Path

from configs.disk import make_private
from configs.errors import ConfigError
from configs.schema import Run
from configs.terminal import TRACEBACK, guarded
from runs.attempt.parent import end_with_parent
from runs.folder import RunFolder, open_run
from runs.trust import check_own

# The process of the torchrun that started this rank (jobs/agent.sh).
AGENT = "AGENT"


def run_command(
    arguments: list[str] | None,
    *,
    engine: str,
    about: str | None,
    commands: Mapping[str, str],
    module_of: Callable[[RunFolder, Run], str | None],
) -> int:
    """Run the command line of `python -m ENGINE`; return 0 for success, 1 for no, 2 for misuse.

    `commands` maps each command to the module with its `main`. `module_of` returns the module
    whose `carry_out` runs a run, or None if the engine does not run its kind. Modules are imported
    only when they are needed, so that help answers at once.
    """
    words = sys.argv[1:] if arguments is None else arguments

    def act() -> int:
        make_private()
        if words and words[0] in commands:
            return int(importlib.import_module(commands[words[0]]).main(words[1:]))
        if len(words) > 1 and words[0].isalpha() and not Path(words[0]).exists():
            raise ConfigError(
                f"{engine} has no command {words[0]}, only {', '.join(commands)}; "
                f"did you mean ditbench {words[0]} {words[1]}?"
            )
        parser = ArgumentParser(
            prog=f"python -m {engine}",
            description=about,
            formatter_class=RawDescriptionHelpFormatter,
        )
        parser.add_argument("run", type=Path, help="run folder")
        parser.add_argument("--attempt", type=int, help="its number; default: the newest")
        options = parser.parse_args(words)
        # The output of a rank is a log, in which `launch why` looks for the traceback.
        os.environ.setdefault(TRACEBACK, "1")
        return _attempt(options.run, options.attempt, engine, module_of)

    return guarded(act)


def _attempt(
    path: Path, number: int | None, engine: str, module_of: Callable[[RunFolder, Run], str | None]
) -> int:
    run = open_run(path)
    check_own(run.path)
    attempt = number or max(run.attempts(), default=0)
    if not attempt or not run.attempt(attempt).is_dir():
        raise ConfigError(f"{path}: no such attempt; `ditbench submit` begins one")
    config = run.config(attempt)
    module = module_of(run, config)
    if module is None:
        raise ConfigError(
            f"{path}: its kind is {config.kind}; `python -m {engine}` does not run it"
        )
    if agent := os.environ.pop(AGENT, None):
        end_with_parent(int(agent))
    # Imported here because torch takes seconds, and help should answer at once.
    from train.engine.attempt import run_attempt
    from train.engine.distributed import end_rank

    work = importlib.import_module(module).carry_out
    return end_rank(run_attempt(run, work, number=attempt))
