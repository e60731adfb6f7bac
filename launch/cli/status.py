"""The command lines of `status`, `tail`, `why`, `cancel` and `doctor`."""

import argparse
import sys
from pathlib import Path

from launch.cli import Commands


def add(commands: Commands) -> None:
    """Add `status`, `tail`, `why`, `cancel` and `doctor`."""
    _add_status(commands)
    tail = commands.add_parser("tail", help="follow the output of a run until it ends")
    tail.add_argument("path", type=Path, metavar="RUN")
    tail.add_argument(
        "-n", "--lines", type=int, default=20, help="number of existing lines to print first"
    )
    tail.set_defaults(action=_tail)
    cancel = commands.add_parser(
        "cancel", help="cancel the jobs of runs or of a study; running runs save first"
    )
    cancel.add_argument("paths", nargs="+", type=Path, metavar="RUN|STUDY")
    cancel.set_defaults(action=_cancel)
    _add_doctor(commands)
    _add_why(commands)


def _add_status(commands: Commands) -> None:
    status = commands.add_parser(
        "status",
        help="show the state of runs: steps, steps/s, job, why it waits; live on a terminal",
        epilog="On a terminal the table is redrawn every 10 s until all runs have ended.",
    )
    status.add_argument(
        "paths", nargs="*", type=Path, metavar="RUN|LOGS", help="runs or folders (default: LOGS)"
    )
    _add_json(status, "JSON on stdout")
    status.add_argument(
        "--wait",
        action="store_true",
        help="wait until all runs have ended and print changes; exit 1 unless all are done",
    )
    status.add_argument(
        "--all", action="store_true", help="show runs that are done, and every column"
    )
    status.add_argument("--once", action="store_true", help="print once, also on a terminal")
    status.set_defaults(action=_status)


def _add_json(command: argparse.ArgumentParser, text: str) -> None:
    """Add `--json`; `form` is then json, else text."""
    command.add_argument(
        "--json", dest="form", action="store_const", const="json", default="text", help=text
    )


def _status(options: argparse.Namespace) -> int:
    from configs.table import json_text
    from launch.status.state import overview, status_row
    from launch.status.view import summary_lines, table_lines
    from launch.status.watch import ChangeLog, Screen, watch
    from launch.submit.site import site_logs
    from runs.folder import ROOT
    from runs.study_folder import is_study_folder

    logs = site_logs(ROOT)
    if not options.paths and not logs.is_dir():
        print(f"no run in {logs}", file=sys.stderr)
        return 0
    paths = options.paths or [logs]
    is_terminal = options.form == "text" and sys.stdout.isatty()
    if options.wait or (is_terminal and not options.once):
        display = Screen() if is_terminal else ChangeLog()
        try:
            runs = watch(paths, on=display, whole=options.all)
        except KeyboardInterrupt:
            print("\nthe jobs go on; to end them: ditbench cancel RUN", file=sys.stderr)
            return 130
        return int(options.wait and not all(one.state.is_done for one in runs))
    runs = overview(paths)
    if options.form == "text" and runs:
        print("\n".join(table_lines(runs, paths, whole=options.all)))
    elif options.form == "json":
        print(json_text([*map(status_row, runs)]))
    else:
        print(f"no run in {' '.join(map(str, paths))}", file=sys.stderr)
    for line in summary_lines(runs, [path for path in paths if is_study_folder(path)]):
        print(line, file=sys.stderr)
    return 0


def _tail(options: argparse.Namespace) -> int:
    from configs.errors import ConfigError
    from launch.status.tail import follow
    from runs.folder import RunFolder, is_run

    if not is_run(options.path):
        raise ConfigError(f"{options.path}: not a run's folder; `ditbench status` lists them")
    run = RunFolder(options.path.resolve())
    end = follow(run, lines=options.lines)
    print(f"{end.word}: {run.path}", file=sys.stderr)
    return int(end.is_failed)


def _cancel(options: argparse.Namespace) -> int:
    from launch.cancel import cancel

    for path in options.paths:
        cancel(path)
    return 0


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="measure how the cluster behaves by a short job, and write a site file",
        epilog="example: ditbench doctor --partition gpu",
    )
    doctor.add_argument(
        "--site", metavar="NAME", help="name of the site file (default: cluster name)"
    )
    doctor.add_argument("--partition", help="partition of the jobs (default: the cluster's)")
    doctor.add_argument("--account", help="account of the jobs, if the site requires one")
    doctor.add_argument("--force", action="store_true", help="overwrite the site file")
    doctor.set_defaults(action=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from launch.doctor.command import doctor
    from launch.slurm.flags import parse_flags

    named = {"account": options.account, "partition": options.partition}
    words = [f"--{name}={value}" for name, value in named.items() if value]
    return doctor(
        site=options.site,
        flags=parse_flags(words, source="command line"),
        force=options.force,
    )


def _add_why(commands: Commands) -> None:
    why = commands.add_parser(
        "why",
        help="find why a run ended: root cause, evidence, and what to type next",
        epilog="example: ditbench why logs/RUN",
    )
    why.add_argument("name", metavar="RUN|STUDY", help="a run or a study, also by the id of a job")
    _add_json(why, "a list with one diagnosis per attempt on stdout")
    why.set_defaults(action=_why)


def _why(options: argparse.Namespace) -> int:
    from launch.why.command import why

    return why(str(options.name), form=options.form)
