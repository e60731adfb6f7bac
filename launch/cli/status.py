"""The command lines of `status`, `tail` and `cancel`."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add(commands: Commands) -> None:
    """Add `status`, `tail` and `cancel`."""
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


def _add_status(commands: Commands) -> None:
    status = commands.add_parser(
        "status",
        help="show the state of runs: steps, steps/s, job, why it waits; live on a terminal",
        epilog="On a terminal the table is redrawn every 10 s until all runs have ended. Jobs that "
        "Slurm holds after a requeue are allowed to begin sooner.",
    )
    status.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="RUN|LOGS",
        help="runs, or folders of runs (default: LOGS)",
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
        help="wait until all runs have ended and print changes; exit 1 unless all are done",
    )
    status.add_argument("--once", action="store_true", help="print once, also on a terminal")
    status.add_argument(
        "--hours", action="store_true", help="show the allocated hours by use instead"
    )
    status.set_defaults(action=_status)


def _status(options: argparse.Namespace) -> int:
    from configs.run.folder import ROOT
    from launch.status.hours import hours_by_use
    from launch.status.state import Overview, overview, table
    from launch.status.watch import ChangeLog, Screen, watch
    from launch.submit.site import site_logs
    from launch.table import show

    paths = options.paths or [site_logs(ROOT)]

    def summaries(now: Overview) -> list[str]:
        states = [(str(row["run"]), str(row["state"])) for row in now.rows]
        return _study_summaries(options.paths, states)

    if options.hours:
        show(hours_by_use(paths), options.form)
        return 0
    is_terminal = options.form == "text" and sys.stdout.isatty()
    if options.wait:
        now = watch(paths, on=Screen() if is_terminal else ChangeLog(), summaries=summaries)
        return int(any(one.event != "done" for one in now.runs))
    if is_terminal and not options.once:
        watch(paths, on=Screen(), summaries=summaries)
        return 0
    now = overview(paths)
    show(table(now.rows) if options.form == "text" else now.rows, options.form)
    for line in summaries(now):
        print(line, file=sys.stderr)
    return 0


def _study_summaries(paths: Sequence[Path], states: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line per study with the number of its runs in each state.

    `states` are pairs of a run's folder and its state.
    """
    from configs.run.study_folder import is_study_folder

    lines = []
    for path in filter(is_study_folder, paths):
        here = path.resolve()
        counts = Counter(state for run, state in states if here in Path(run).resolve().parents)
        shown = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        lines.append(f"{path}: {sum(counts.values())} runs: {shown}")
    return lines


def _tail(options: argparse.Namespace) -> int:
    from configs.run.folder import RunFolder
    from launch.status.tail import check_run, follow

    run = RunFolder(options.path.resolve())
    check_run(run)
    end = follow(run, lines=options.lines)
    print(f"{end.event}: {run.path}", file=sys.stderr)
    return int(end.event == "failed")


def _cancel(options: argparse.Namespace) -> int:
    from launch.cancel import cancel

    for path in options.paths:
        cancel(path)
    return 0
