"""The command lines of `check`, `plan`, `submit` and `rerun`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from launch.cli import Commands

if TYPE_CHECKING:
    from launch.slurm.flags import Flags
    from launch.submit.submission import Choices, How, Submission

# The flags of `check`, and their help.
_CHECK_FLAGS = {
    "slurm": "batch scripts: the version of Slurm, such as 24.11 (default: this machine's)",
    "trigger": "captioned images: the word that stands for the subject",
    "resolution": "captioned images: the smallest resolution in px (default: 512)",
    "vae": "latents: the folder of the VAE, if it has moved",
}


def add(commands: Commands) -> None:
    """Add `check`, `plan`, `submit` and `rerun`."""
    _add_check(commands)
    _add_plan(commands)
    _add_submit(commands)
    rerun = commands.add_parser(
        "rerun",
        help="resubmit failed runs of studies, also those out of memory, or failed single runs",
    )
    rerun.add_argument("paths", nargs="+", type=Path, metavar="RUN|STUDY")
    _add_site(rerun)
    _add_force(rerun)
    rerun.set_defaults(action=_rerun)


def _add_check(commands: Commands) -> None:
    check = commands.add_parser(
        "check",
        help="look what X is, and whether it is sound; no cluster is asked",
        epilog="X: a config or study with key=value, a batch script, a folder of "
        "images, latents, a LoRA. exit codes: 0 sound, 1 problems, 2 invalid or unknown",
    )
    check.add_argument("words", nargs="+", metavar="X", help="files and folders, then key=value")
    for name, text in _CHECK_FLAGS.items():
        check.add_argument(f"--{name}", metavar=name.upper(), help=text)
    check.add_argument("--fast", action="store_true", help="images, latents: read samples only")
    check.set_defaults(action=_check)


def _check(options: argparse.Namespace) -> int:
    from launch.check.command import check

    given = {name: getattr(options, name) for name in (*_CHECK_FLAGS, "fast")}
    return check(options.words, {name: value for name, value in given.items() if value})


def _add_plan(commands: Commands) -> None:
    plan = commands.add_parser(
        "plan",
        help="does it fit, where, when, for how much, and what would be submitted?",
        epilog="example: ditbench plan configs/pretrain/digits.yaml resources.gpu=a40. "
        "exit code 1: submit would refuse it",
    )
    _add_request(plan)
    plan.add_argument(
        "--measure", action="store_true", help="first time a minute of steps, on the cluster"
    )
    plan.add_argument("--all", action="store_true", help="print all columns and cells")
    plan.add_argument("--script", action="store_true", help="print only what sbatch would get")
    plan.add_argument(
        "--yaml",
        action="store_true",
        help="of a batch script: print only the study that it becomes",
    )
    plan.set_defaults(action=_plan)


def _plan(options: argparse.Namespace) -> int:
    from configs.errors import ConfigError
    from launch.plan.command import plan
    from launch.script.submission import ScriptSubmission

    subject = _submission(options, "plan")
    only = subject.scripts() if options.script else None
    if options.yaml:
        if not isinstance(subject, ScriptSubmission):
            raise ConfigError(f"{options.source}: --yaml is for a batch script")
        only = [subject.yaml()]
    return plan(subject, whole=options.all, only=only)


def _add_submit(commands: Commands) -> None:
    submit = commands.add_parser(
        "submit",
        help="queue a batch script or a config as a run, resume a run, or run a study",
        epilog="sbatch flags go after --, as in: submit CONFIG -- --account=lab_123",
    )
    _add_request(submit)
    submit.add_argument("--local", action="store_true", help="run here, in background")
    submit.set_defaults(action=_submit)


def _add_request(command: argparse.ArgumentParser) -> None:
    """Add what says which run or study: the same for `plan` and `submit`."""
    command.add_argument(
        "source", type=Path, metavar="SCRIPT|CONFIG|STUDY|RUN",
        help="batch script, config, study, or folder to resume",
    )  # fmt: skip
    command.add_argument(
        "overrides", nargs="*", metavar="key=value",
        help="overrides; key=v1,v2 makes a grid; of a script: its arguments",
    )  # fmt: skip
    own = command.add_argument_group("of a batch script")
    own.add_argument(
        "--vary", action="append", default=[], metavar="NAME=V1,V2",
        help="a run for each value of a flag (--vary --lr=1e-4,3e-4), a variable or a key=value",
    )  # fmt: skip
    own.add_argument("--seeds", type=int, default=0, metavar="N", help="runs with N seeds")
    own.add_argument("--repeats", type=int, default=1, metavar="N", help="runs with one seed")
    own.add_argument(
        "--resume", metavar="FLAGS",
        help="requeue at the limit, then add these: '--ckpt {newest:out/ckpt-*.pt}'",
    )  # fmt: skip
    own.add_argument(
        "--snapshot", action="store_true", help="run in a copy of the repository, made now"
    )
    command.add_argument("--new", action="store_true", help="of a study: begin another folder")
    _add_site(command)
    _add_force(command)


def _add_site(command: argparse.ArgumentParser) -> None:
    command.add_argument("--site", help="use env/sites/SITE.sh instead of this host's site file")


def _add_force(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--force", action="store_true",
        help="submit what the checks refuse, and cells that do not fit by forecast",
    )  # fmt: skip


def _submit(options: argparse.Namespace) -> int:
    from launch.submit.submission import submit

    return submit(_submission(options, "local" if options.local else "slurm"))


def _submission(options: argparse.Namespace, how: "How") -> "Submission":
    """Resolve what `plan` and `submit` are asked about."""
    from configs.errors import ConfigError
    from launch.script.request import is_of_a_script
    from launch.slurm.flags import parse_flags

    source, choices = options.source, _choices(options, how)
    if is_of_a_script(source):
        return _script(options, choices)
    names = ("vary", "seeds", "resume", "snapshot")
    given = {f"--{name}": getattr(options, name) for name in names}
    given["--repeats"] = options.repeats != 1
    if wrong := [flag for flag, value in given.items() if value]:
        raise ConfigError(
            f"{source}: {wrong[0]} is for a batch script; of a config write key=v1,v2, "
            "seed=0,1,2 or repeats=3"
        )
    flags = parse_flags(options.flags, source="after --")
    measures = getattr(options, "measure", False)
    return _of_config(source, options.overrides, flags, choices, options.umask, measures=measures)


def _script(options: argparse.Namespace, choices: "Choices") -> "Submission":
    """Resolve a batch script with its arguments and what is varied."""
    from launch.script.request import ScriptRequest, script_study
    from launch.script.submission import script_submission
    from launch.submit.site import site_logs
    from launch.submit.snapshot import read_repository
    from runs.folder import ROOT

    study = script_study(
        options.source, arguments=options.overrides, varied=options.vary, seeds=options.seeds,
        repeats=options.repeats, resume=options.resume,
    )  # fmt: skip
    request = ScriptRequest(
        study=study, flags=options.flags, choices=choices, umask=options.umask,
        repository=read_repository(Path.cwd()) if options.snapshot else None,
    )  # fmt: skip
    return script_submission(request, site_logs(ROOT))


def _of_config(
    source: Path, overrides: list[str], flags: "Flags", choices: "Choices", umask: int, *,
    measures: bool = False, rerun: bool = False,
) -> "Submission":  # fmt: skip
    """Resolve a config, a study, or a folder of one to continue."""
    from configs.errors import ConfigError
    from configs.grid.study_file import is_study
    from launch.script.start import script_rerun
    from launch.submit.config import ConfigSubmission
    from launch.submit.request import run_request, study_submission
    from runs.folder import is_run
    from runs.study_folder import is_study_folder

    if any(source.glob("script/slurm_script")) or any(source.glob("cells/*/script/slurm_script")):
        return script_rerun(source, choices, umask=umask, rerun=rerun)
    if not is_study_folder(source) and (is_run(source) or not is_study(source, overrides)):
        found = run_request(source, overrides, site_name=choices.site_name, extra=flags)
        return ConfigSubmission(
            choices=choices, folder=found.run, is_new=found.resumes is None, requests=[found],
            site=found.site, tree=found.tree, measures=measures,
        )  # fmt: skip
    if measures:
        raise ConfigError(f"{source}: --measure is for one config; this is a study")
    return study_submission(source, overrides, flags=flags, choices=choices, rerun=rerun)


def _choices(options: argparse.Namespace, how: "How" = "slurm") -> "Choices":
    from launch.submit.submission import Choices

    given = {name: getattr(options, name, False) for name in ("new", "force")}
    return Choices(how=how, site_name=options.site, **given)


def _rerun(options: argparse.Namespace) -> int:
    from launch.submit.submission import submit

    for path in options.paths:
        submit(_of_config(path, [], {}, _choices(options), options.umask, rerun=True))
    return 0
