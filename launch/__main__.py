"""`python -m launch`: submit runs to the cluster, see what became of them, follow and end them."""

import argparse
import os
import sys
from pathlib import Path

PLAIN = argparse.RawDescriptionHelpFormatter

EXAMPLES = """examples:
  python -m launch submit configs/pretrain/imagenet64.yaml train.steps=1000 --dry-run
  python -m launch submit configs/pretrain/imagenet64.yaml -- --account=lab_123
  python -m launch status
  python -m launch tail logs/RUN

exit codes: 0 good, 1 no, 2 misuse"""


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and carry it out; 0 good, 1 no, 2 misuse."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    # Imported late: help answers at once.
    from configs.disk import make_private
    from configs.yaml12 import ConfigError
    from launch.cluster import Refused

    make_private()
    try:
        return int(options.action(options))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; words after `--` are `flags`, and `key=value` may stand anywhere."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    top = parser()
    options, rest = top.parse_known_args(arguments[:cut])
    options.flags = arguments[cut + 1 :]
    if any(word.startswith("-") for word in rest) or (rest and options.command != "submit"):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.flags and options.command != "submit":
        top.error("only submit takes flags after --")
    if rest:
        options.overrides += rest
    return options


def parser() -> argparse.ArgumentParser:
    """The command line: one sub-command per thing to do."""
    top = argparse.ArgumentParser(
        prog="python -m launch", description=__doc__, epilog=EXAMPLES, formatter_class=PLAIN
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    submit = commands.add_parser(
        "submit",
        help="queue a config as a new run, or resume a run",
        epilog="Flags of sbatch may follow a --, as in: submit CONFIG -- --account=lab_123",
    )
    submit.add_argument("source", type=Path, metavar="CONFIG|RUN", help="config, or run to resume")
    submit.add_argument("overrides", nargs="*", metavar="key=value", help="what to change of it")
    how = submit.add_mutually_exclusive_group()
    how.add_argument(
        "--dry-run",
        dest="how",
        action="store_const",
        const="dry",
        default="slurm",
        help="print the batch script and the same by hand; write nothing",
    )
    how.add_argument(
        "--local",
        dest="how",
        action="store_const",
        const="local",
        help="run it on this machine, in the background",
    )
    submit.add_argument("--site", help="take env/sites/SITE.sh, not that of this host")
    submit.add_argument("--partition", help="short for -- --partition=...")
    submit.set_defaults(action=_submit)
    return top


def _submit(options: argparse.Namespace) -> int:
    from launch.flags import parse_flags
    from launch.submit import submit

    words = [f"--partition={options.partition}"] if options.partition else []
    return submit(
        options.source,
        options.overrides,
        how=options.how,
        site_name=options.site,
        extra=parse_flags([*words, *options.flags], source="after --"),
    )


if __name__ == "__main__":
    sys.exit(main())
