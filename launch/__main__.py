"""Submit runs to the cluster, watch them, diagnose them and cancel them."""

import argparse
import sys
from pathlib import Path

from configs.terminal import command_parser
from launch.cli import status, submit

EXAMPLES = """examples:
  ditbench check configs/pretrain/*.yaml my.sbatch data/images
  ditbench submit my.sbatch --vary --lr=1e-4,3e-4 --seeds 3
  ditbench plan configs/pretrain/imagenet64.yaml resources.gpu=a40
  ditbench submit configs/pretrain/imagenet64.yaml -- --account=lab_123
  ditbench submit configs/pretrain/digits.yaml optimizer.lr=1e-4,3e-4 repeats=3
  ditbench status
  ditbench tail logs/RUN
  ditbench why logs/RUN

RUN and STUDY are folders, names in LOGS or the start of one, ids of jobs, or last: the newest run.
exit codes: 0 good, 1 no, 2 misuse"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; return 0 if good, 1 if not, 2 for misuse."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    # Imported after parsing, so that --help answers at once.
    from configs.disk import make_private
    from configs.terminal import guarded
    from launch.slurm.client import Refused

    def act() -> int:
        options.umask = make_private()
        try:
            # `check` of a script needs no package, so that any Python can do it.
            if options.command != "check":
                _resolve(options)
            return int(options.action(options))
        except Refused as error:
            print(error, file=sys.stderr)
            return 1

    try:
        return guarded(act)
    except KeyboardInterrupt:
        return 130


def _resolve(options: argparse.Namespace) -> None:
    """Replace names of runs and studies, and ids of their jobs, by folders."""
    from launch.submit.site import site_logs
    from runs.folder import ROOT
    from runs.lookup import look_up

    def found(name: object) -> Path:
        return look_up(str(name), logs=lambda: site_logs(ROOT))

    for field in ("path", "source", "name"):
        if getattr(options, field, None) is not None:
            setattr(options, field, found(getattr(options, field)))
    if getattr(options, "paths", None):
        options.paths = [found(path) for path in options.paths]


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the options; `key=value` may stand anywhere.

    Words after `--` become `flags` of sbatch, those after a second `--` arguments of the script.
    """
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    top = parser()
    options, rest = top.parse_known_args(_with_values(_without_dry_run(arguments[:cut])))
    flags = arguments[cut + 1 :]
    end = flags.index("--") if "--" in flags else len(flags)
    options.flags, words = flags[:end], flags[end + 1 :]
    if any(word.startswith("-") for word in rest) or (rest and "overrides" not in options):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.flags and options.command not in ("plan", "submit"):
        top.error("only plan and submit take flags after --")
    if rest or words:
        options.overrides += rest + words
    return options


def _without_dry_run(words: list[str]) -> list[str]:
    """Return `submit X --dry-run` as `plan X`, which it is."""
    if words[:1] == ["submit"] and "--dry-run" in words:
        return ["plan", *(word for word in words[1:] if word != "--dry-run")]
    return words


def _with_values(words: list[str]) -> list[str]:
    """Return `--vary --lr=1,2` as one word, since argparse takes no value that begins with -."""
    left, joined = iter(words), list[str]()
    for word in left:
        joined.append(f"{word}={next(left, '')}" if word in ("--vary", "--resume") else word)
    return joined


def parser() -> argparse.ArgumentParser:
    """Return the parser with one sub-command per task."""
    top = command_parser("", __doc__, EXAMPLES)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (submit, status):
        group.add(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
