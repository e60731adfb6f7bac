"""The command lines of `submit` and `rerun`."""

import argparse
from pathlib import Path

from launch.cli import Commands, add_forms, add_site


def add(commands: Commands) -> None:
    """Add `submit`, `when` and `rerun`."""
    _add_submit(commands)
    when = commands.add_parser(
        "when", help="when would a run or study be done: start, finish, GPU-hours, money, by shape"
    )
    when.add_argument("source", type=Path, metavar="CONFIG|STUDY|RUN", help="as of submit")
    when.add_argument("overrides", nargs="*", metavar="key=value", help="overrides")
    when.add_argument("--rates", type=Path, metavar="FILE", help="YAML: money per GPU-hour")
    when.add_argument("--partition", help="ask about this partition")
    when.add_argument("--all", action="store_true", help="print all columns, however wide")
    add_site(when)
    add_forms(when, json="JSON on stdout", csv="CSV on stdout")
    when.set_defaults(action=_when)
    rerun = commands.add_parser(
        "rerun",
        help="resubmit failed runs of studies, also those out of memory, or failed single runs",
    )
    rerun.add_argument("paths", nargs="+", type=Path, metavar="RUN|STUDY")
    add_site(rerun)
    _add_answers(rerun)
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
        help="print batch scripts, plan and cost, then all that would be refused; write nothing",
    )
    how.add_argument(
        "--local", dest="how", action="store_const", const="local", help="run here, in background"
    )
    folder = submit.add_mutually_exclusive_group()
    folder.add_argument("--into", type=Path, metavar="FOLDER", help="add a study's cells to FOLDER")
    folder.add_argument(
        "--new", action="store_true", help="run again what waits, runs, or is done in a study"
    )
    submit.add_argument(
        "--shell", action="store_true", help="print the results of a study as shell assignments"
    )
    submit.add_argument(
        "--json", action="store_true", help="--dry-run of a study: the plan as JSON"
    )
    submit.add_argument(
        "--no-forecast", action="store_true", help="keep cells that do not fit by forecast"
    )
    submit.add_argument("--partition", help="short for -- --partition=...")
    add_site(submit)
    _add_answers(submit)
    submit.set_defaults(action=_submit)


def _add_answers(command: argparse.ArgumentParser) -> None:
    command.add_argument("--yes", action="store_true", help="do not ask before 20 runs or more")
    command.add_argument(
        "--force", action="store_true", help="submit what the checks refuse; sbatch decides"
    )


def _submit(options: argparse.Namespace) -> int:
    from configs.errors import ConfigError
    from configs.grid.study_file import is_study
    from launch.slurm.flags import parse_flags
    from launch.submit.run import Choices, submit
    from launch.submit.study import StudyRequest, submit_study
    from runs.folder import is_run
    from runs.study_folder import is_study_folder

    source, overrides = options.source, options.overrides
    words = [f"--partition={options.partition}"] if options.partition else []
    flags = parse_flags([*words, *options.flags], source="after --")
    choices = Choices(
        how=options.how,
        site_name=options.site,
        new=options.new,
        force=options.force,
        yes=options.yes,
    )
    if options.json and options.how != "dry":
        raise ConfigError("--json prints the plan of a study with --dry-run")
    if is_study_folder(source) or (not is_run(source) and is_study(source, overrides)):
        request = StudyRequest(
            source=source,
            overrides=overrides,
            flags=flags,
            choices=choices,
            into=options.into,
            with_forecast=not options.no_forecast,
            for_shell=options.shell,
            as_json=options.json,
        )
        return submit_study(request)
    if options.into or options.shell or options.json:
        raise ConfigError(f"{source}: --into, --shell and --json are for studies; this is a run")
    return submit(source, overrides, choices=choices, extra=flags)


def _when(options: argparse.Namespace) -> int:
    from launch.when import when

    return when(
        options.source, options.overrides, site_name=options.site, form=options.form,
        flags={"partition": options.partition} if options.partition else {}, rates=options.rates,
        whole=options.all,
    )  # fmt: skip


def _rerun(options: argparse.Namespace) -> int:
    from launch.submit.run import Choices, submit
    from launch.submit.study import StudyRequest, submit_study
    from runs.study_folder import is_study_folder

    choices = Choices(site_name=options.site, force=options.force, yes=options.yes)
    for path in options.paths:
        if is_study_folder(path):
            request = StudyRequest(source=path, overrides=[], flags={}, choices=choices, rerun=True)
            submit_study(request)
        else:
            submit(path, [], choices=choices, extra={})
    return 0
