"""`python -m launch`: submit runs to the cluster, see what became of them, follow and end them."""

import argparse
import sys
from pathlib import Path
from typing import TypeAlias

from launch.cli import diagnosis, studies

PLAIN = argparse.RawDescriptionHelpFormatter

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
    """Parse the command line and carry it out; 0 good, 1 no, 2 misuse."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    # Imported late: help answers at once.
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
    """The options; words after `--` are `flags`, and `key=value` may stand anywhere."""
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
    """The command line: one sub-command per thing to do."""
    top = argparse.ArgumentParser(
        prog="python -m launch", description=__doc__, epilog=EXAMPLES, formatter_class=PLAIN
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_submit(commands)
    _add_status(commands)
    _add_cancel_and_tail(commands)
    studies.add(commands)
    diagnosis.add(commands)
    return top


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add_submit(commands: Commands) -> None:
    submit = commands.add_parser(
        "submit",
        help="queue a config as a new run, resume a run, or run a study",
        epilog="Flags of sbatch may follow a --, as in: submit CONFIG -- --account=lab_123",
    )
    submit.add_argument(
        "source", type=Path, metavar="CONFIG|STUDY|RUN", help="config, study, or folder to resume"
    )
    submit.add_argument(
        "overrides", nargs="*", metavar="key=value", help="changes; key=v1,v2 makes a grid"
    )
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
    studies.add_submit_options(submit)
    submit.set_defaults(action=_submit)


def _add_status(commands: Commands) -> None:
    status = commands.add_parser(
        "status",
        help="how runs stand: state, steps, pace, job, why it waits; live on a terminal",
        epilog="On a terminal it is drawn anew every 10 s until all has ended, and lets jobs that "
        "Slurm holds after a requeue begin sooner.",
    )
    status.add_argument(
        "paths", nargs="*", type=Path, metavar="RUN|LOGS", help="runs, or folders of them; LOGS"
    )
    form = status.add_mutually_exclusive_group()
    for name in ("json", "csv"):
        form.add_argument(
            f"--{name}",
            dest="form",
            action="store_const",
            const=name,
            default="text",
            help=f"{name.upper()} on stdout",
        )
    status.add_argument(
        "--wait",
        action="store_true",
        help="until all has ended, in a pipe too, where it says what changes; 1 if not all is done",
    )
    status.add_argument(
        "--once", action="store_true", help="on a terminal too: look once, do not follow"
    )
    status.add_argument(
        "--hours", action="store_true", help="the ledger instead: what the allocated hours went to"
    )
    status.set_defaults(action=_status)


def _add_cancel_and_tail(commands: Commands) -> None:
    cancel = commands.add_parser(
        "cancel", help="cancel the jobs of runs or of a study; what runs saves first"
    )
    cancel.add_argument("paths", nargs="+", type=Path, metavar="RUN|STUDY")
    cancel.set_defaults(action=_cancel)

    tail = commands.add_parser("tail", help="follow what a run says, until it has ended")
    tail.add_argument("path", type=Path, metavar="RUN")
    tail.add_argument("-n", "--lines", type=int, default=20, help="so many of those there already")
    tail.set_defaults(action=_tail)


def _submit(options: argparse.Namespace) -> int:
    from configs.errors import ConfigError
    from launch.slurm.flags import parse_flags
    from launch.submit.run import submit
    from launch.submit.study import submit_study
    from launch.submit.study_request import StudyRequest

    words = [f"--partition={options.partition}"] if options.partition else []
    flags = parse_flags([*words, *options.flags], source="after --")
    if studies.is_study_wish(options.source, options.overrides):
        wish = StudyRequest(
            source=options.source,
            overrides=options.overrides,
            site_name=options.site,
            flags=flags,
            into=options.into,
            fresh=options.new,
            with_forecast=not options.no_forecast,
        )
        return submit_study(wish, how=options.how)
    if options.into or options.new:
        raise ConfigError(f"{options.source}: --into and --new are for studies, and this is none")
    return submit(
        options.source,
        options.overrides,
        how=options.how,
        site_name=options.site,
        extra=flags,
    )


def _status(options: argparse.Namespace) -> int:
    from configs.run.folder import ROOT
    from launch.status.hours import ledger
    from launch.status.state import Overview, overview, table
    from launch.status.watch import ChangeLog, Screen, watch
    from launch.submit.site import logs_of_site
    from launch.table import show

    paths = options.paths or [logs_of_site(ROOT)]

    def summaries(now: Overview) -> list[str]:
        states = [(str(row["run"]), str(row["state"])) for row in now.rows]
        return studies.summaries(options.paths, states)

    if options.hours:
        show(ledger(paths), options.form)
        return 0
    is_terminal = options.form == "text" and sys.stdout.isatty()
    if options.wait:
        now = watch(paths, on=Screen() if is_terminal else ChangeLog(), summaries=summaries)
        return int(any(one.event != "done" for one in now.standings))
    if is_terminal and not options.once:
        watch(paths, on=Screen(), summaries=summaries)
        return 0
    now = overview(paths)
    show(table(now.rows) if options.form == "text" else now.rows, options.form)
    for line in summaries(now):
        print(line, file=sys.stderr)
    return 0


def _cancel(options: argparse.Namespace) -> int:
    from launch.cancel import cancel

    for path in options.paths:
        cancel(path)
    return 0


def _tail(options: argparse.Namespace) -> int:
    from configs.run.folder import RunFolder
    from launch.status.tail import check_run, follow

    run = RunFolder(options.path.resolve())
    check_run(run)
    end = follow(run, lines=options.lines)
    print(f"{end.event}: {run.path}", file=sys.stderr)
    return int(end.event == "failed")


if __name__ == "__main__":
    sys.exit(main())
