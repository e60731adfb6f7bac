"""The commands on studies: `plan`, `rerun`, and what `submit` is told of one."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add(commands: Commands) -> None:
    """Add `plan` and `rerun`."""
    plan = commands.add_parser(
        "plan",
        help="list the cells of a study: shapes, order, GPU-hours, what is hopeless",
        epilog="key=v1,v2 gives an axis its values, or makes a grid of a plain config",
    )
    plan.add_argument("source", type=Path, metavar="STUDY|CONFIG")
    plan.add_argument("overrides", nargs="*", metavar="key=v1,v2")
    plan.add_argument("--json", action="store_true", help="JSON on stdout")
    _add_forecast(plan)
    plan.set_defaults(action=_plan)

    rerun = commands.add_parser(
        "rerun", help="submit again what failed of studies, out of memory too, or failed runs"
    )
    rerun.add_argument("paths", nargs="+", type=Path, metavar="RUN|STUDY")
    rerun.add_argument("--site", help="take env/sites/SITE.sh, not that of this host")
    rerun.set_defaults(action=_rerun)


def add_submit_options(submit: argparse.ArgumentParser) -> None:
    """What `submit` takes for studies only."""
    where = submit.add_mutually_exclusive_group()
    where.add_argument("--into", type=Path, metavar="FOLDER", help="add a study's cells to FOLDER")
    where.add_argument(
        "--new", action="store_true", help="a new folder, though this very study has one"
    )
    _add_forecast(submit)


def _add_forecast(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--no-forecast", action="store_true", help="keep cells that the forecast calls hopeless"
    )


def is_study_wish(source: Path, overrides: list[str]) -> bool:
    """Whether `submit` is about a study: its folder, its file, or a config with several values."""
    from configs.grid.study_file import is_study
    from configs.run.folder import is_run
    from configs.run.study_folder import is_study_folder

    return is_study_folder(source) or (not is_run(source) and is_study(source, overrides))


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
    from launch.submit.study import submit_study
    from launch.submit.study_request import StudyRequest

    for path in options.paths:
        if is_study_folder(path):
            wish = StudyRequest(
                source=path, overrides=[], site_name=options.site, flags={}, again=True
            )
            submit_study(wish, how="slurm")
        else:
            submit(path, [], how="slurm", site_name=options.site, extra={})
    return 0


def summaries(paths: Sequence[Path], states: Sequence[tuple[str, str]]) -> list[str]:
    """For each study among `paths` a line: how many of its runs are in which state.

    `states` are (run's folder, state).
    """
    from configs.run.study_folder import is_study_folder

    lines = []
    for path in filter(is_study_folder, paths):
        here = path.resolve()
        mine = Counter(state for run, state in states if here in Path(run).resolve().parents)
        told = ", ".join(f"{count} {state}" for state, count in mine.most_common())
        lines.append(f"{path}: {sum(mine.values())} runs: {told}")
    return lines
