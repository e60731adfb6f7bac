"""`python -m launch`: submit runs to the cluster, watch them, diagnose them and cancel them."""

import argparse
import sys

from launch.cli import diagnose, status, submit

EXAMPLES = """examples:
  python -m launch submit configs/pretrain/imagenet64.yaml train.steps=1000 --dry-run
  python -m launch submit configs/pretrain/imagenet64.yaml -- --account=lab_123
  python -m launch plan configs/studies/layouts.yaml
  python -m launch submit configs/pretrain/digits.yaml optimizer.lr=1e-4,3e-4 repeats=3
  python -m launch status
  python -m launch tail logs/RUN
  python -m launch preflight configs/pretrain/imagenet64.yaml resources.gpu=a40
  python -m launch why logs/RUN

exit codes: 0 good, 1 no, 2 misuse"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; return 0 if good, 1 if not, 2 for misuse."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    # Imported after parsing, so that --help answers at once.
    from configs.disk import make_private
    from configs.errors import ConfigError
    from configs.terminal import while_read
    from launch.slurm.client import Refused

    make_private()
    try:
        return while_read(lambda: int(options.action(options)))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the options; words after `--` become `flags`, and `key=value` may stand anywhere."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    top = parser()
    options, rest = top.parse_known_args(arguments[:cut])
    options.flags = arguments[cut + 1 :]
    if any(word.startswith("-") for word in rest) or (rest and "overrides" not in options):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.flags and options.command != "submit":
        top.error("only submit takes flags after --")
    if rest:
        options.overrides += rest
    return options


def parser() -> argparse.ArgumentParser:
    """Return the parser with one sub-command per task."""
    top = argparse.ArgumentParser(
        prog="python -m launch",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (submit, status, diagnose):
        group.add(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
