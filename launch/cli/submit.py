"""The command lines of `submit`, `plan` and `rerun`."""

import argparse
import json
import sys
from pathlib import Path
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add(commands: Commands) -> None:
    """Add `submit`, `plan` and `rerun`."""
    _add_submit(commands)
    _add_plan(commands)
    rerun = commands.add_parser(
        "rerun",
        help="resubmit failed runs of studies, also those out of memory, or failed single runs",
    )
    rerun.add_argument("paths", nargs="+", type=Path, metavar="RUN|STUDY")
    _add_site(rerun)
    rerun.set_defaults(action=_rerun)


def _add_submit(commands: Commands) -> None:
    submit = commands.add_parser(
        "submit",
        help="queue a config as a new run, resume a run, or run a study",
        epilog="sbatch flags go after --, as in: submit CONFIG -- --account=lab_123",
    )
    submit.add_argument(
        "source", type=Path, metavar="CONFIG|STUDY|RUN", help="config, study, or folder to resume"
    )
    submit.add_argument(
        "overrides", nargs="*", metavar="key=value", help="overrides; key=v1,v2 makes a grid"
    )
    how = submit.add_mutually_exclusive_group()
    how.add_argument(
        "--dry-run",
        dest="how",
        action="store_const",
        const="dry",
        default="slurm",
        help="print the batch script and the equivalent sbatch command; write nothing",
    )
    how.add_argument(
        "--local",
        dest="how",
        action="store_const",
        const="local",
        help="run in the background on this machine",
    )
    _add_site(submit)
    submit.add_argument("--partition", help="short for -- --partition=...")
    folder = submit.add_mutually_exclusive_group()
    folder.add_argument("--into", type=Path, metavar="FOLDER", help="add a study's cells to FOLDER")
    folder.add_argument(
        "--new", action="store_true", help="make a new folder even if this study has one"
    )
    submit.add_argument(
        "--shell", action="store_true", help="print the results of a study as shell assignments"
    )
    _add_forecast(submit)
    submit.set_defaults(action=_submit)


def _add_plan(commands: Commands) -> None:
    plan = commands.add_parser(
        "plan",
        help="list the cells of a study: shapes, order, GPU-hours, cells that do not fit",
        epilog="key=v1,v2 sets the values of an axis, or makes a grid of a plain config",
    )
    plan.add_argument("source", type=Path, metavar="STUDY|CONFIG")
    plan.add_argument("overrides", nargs="*", metavar="key=v1,v2")
    plan.add_argument("--json", action="store_true", help="JSON on stdout")
    _add_forecast(plan)
    plan.set_defaults(action=_plan)


def _add_site(command: argparse.ArgumentParser) -> None:
    command.add_argument("--site", help="use env/sites/SITE.sh instead of this host's site file")


def _add_forecast(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--no-forecast", action="store_true", help="keep cells that do not fit by forecast"
    )


def _submit(options: argparse.Namespace) -> int:
    from configs.errors import ConfigError
    from configs.grid.study_file import is_study
    from configs.run.folder import is_run
    from configs.run.study_folder import is_study_folder
    from launch.slurm.flags import parse_flags
    from launch.submit.run import submit
    from launch.submit.study import StudyRequest, submit_study

    source, overrides = options.source, options.overrides
    words = [f"--partition={options.partition}"] if options.partition else []
    flags = parse_flags([*words, *options.flags], source="after --")
    if is_study_folder(source) or (not is_run(source) and is_study(source, overrides)):
        request = StudyRequest(
            source=source,
            overrides=overrides,
            site_name=options.site,
            flags=flags,
            into=options.into,
            new=options.new,
            with_forecast=not options.no_forecast,
            for_shell=options.shell,
        )
        return submit_study(request, how=options.how)
    if options.into or options.new or options.shell:
        raise ConfigError(f"{source}: --into, --new and --shell are for studies, and this is a run")
    return submit(source, overrides, how=options.how, site_name=options.site, extra=flags)


def _plan(options: argparse.Namespace) -> int:
    from configs.grid.study_file import load_grid
    from launch.submit.plan import make_plan, table, to_json
    from launch.table import text

    grid = load_grid(options.source, options.overrides)
    plan = make_plan(grid, with_forecast=not options.no_forecast)
    if options.json:
        print(json.dumps(to_json(plan), indent=1))
        return 0
    print(text(table(plan)))
    arrays = plan.shapes()
    dropped = len(plan.runs) - len(plan.kept)
    print(
        f"\n{len(plan.kept)} runs of {len(grid.cells)} cells, {dropped} dropped, "
        f"{len(arrays)} {'array' if len(arrays) == 1 else 'arrays'}, "
        f"at most {plan.gpu_hours:g} GPU-hours"
    )
    print("\n".join(plan.remarks), file=sys.stderr)
    if plan.absent:
        print(f"cannot be submitted yet: {plan.absent}", file=sys.stderr)
    return 0


def _rerun(options: argparse.Namespace) -> int:
    from configs.run.study_folder import is_study_folder
    from launch.submit.run import submit
    from launch.submit.study import StudyRequest, submit_study

    for path in options.paths:
        if is_study_folder(path):
            request = StudyRequest(
                source=path, overrides=[], site_name=options.site, flags={}, rerun=True
            )
            submit_study(request, how="slurm")
        else:
            submit(path, [], how="slurm", site_name=options.site, extra={})
    return 0
