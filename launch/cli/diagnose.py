"""The command lines of `doctor` and `why`."""

import argparse

from launch.cli import Commands, add_json


def add(commands: Commands) -> None:
    """Add `doctor` and `why`."""
    _add_doctor(commands)
    _add_why(commands)


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
    add_json(why, "a list with one diagnosis per attempt on stdout")
    why.set_defaults(action=_why)


def _why(options: argparse.Namespace) -> int:
    from launch.why.command import why

    return why(str(options.name), form=options.form)
