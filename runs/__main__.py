"""Open, run and close attempts at runs, for the bodies of jobs; show the config of a run.

Example: python -m runs open configs/pretrain/digits.yaml
"""

import argparse
import sys
from pathlib import Path

from configs.checks.aitoolkit_example import example
from configs.disk import make_private
from configs.errors import ConfigError
from configs.load import load, to_tree
from configs.paths import config_paths
from configs.schema import KINDS, MODELS, keys
from configs.terminal import guarded
from configs.yaml12 import dump_yaml
from runs.attempt.close import close_attempt, has_ended
from runs.attempt.open import open_attempt
from runs.folder import RunFolder, is_run


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 for success, 1 for a negative answer, 2 for misuse."""
    options = _parser().parse_args(arguments)

    def act() -> int:
        make_private()
        return int(options.action(options))

    return guarded(act)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    show = actions.add_parser(
        "show", help="print a config with every key resolved, or what every key of a kind means"
    )
    show.add_argument(
        "source", type=Path, help=f"config, run folder, or a kind: {', '.join(MODELS)}"
    )
    show.add_argument("overrides", nargs="*", metavar="key=value")
    show.add_argument(
        "--arch", help="of `finetune`: a config for a model of ai-toolkit, by its own settings"
    )
    show.add_argument(
        "--paths", action="store_true", help="print only the paths that exist, each ended by NUL"
    )
    show.set_defaults(action=_show)

    open_ = actions.add_parser(
        "open",
        help="find or create a run and begin an attempt; print its ranks_per_node and folder",
    )
    open_.add_argument("source", type=Path, help="config (new run) or run folder (resume)")
    open_.add_argument("overrides", nargs="*", metavar="key=value")
    open_.add_argument("--kind", choices=sorted(KINDS), help="kind of run that the job is for")
    open_.add_argument("--nodes", type=int, default=1, help="nodes of the job")
    open_.add_argument("--gpus", default="", help="GPUs per node, empty if not known yet")
    open_.add_argument("--began", type=float, help="start of the job, seconds since 1970")
    open_.set_defaults(action=_open)

    close = actions.add_parser(
        "close",
        help="record how an attempt ended; print its last event, what is next, a faulty node",
    )
    close.add_argument("attempt", type=Path, help="folder of the attempt")
    close.add_argument("--status", type=int, required=True, help="exit status of the ranks")
    close.set_defaults(action=_close)

    ended = actions.add_parser("ended", help="exit with 0 if the ranks of an attempt have ended")
    ended.add_argument("attempt", type=Path, help="folder of the attempt")
    ended.set_defaults(action=lambda options: 0 if has_ended(options.attempt) else 1)
    return parser


def _show(options: argparse.Namespace) -> int:
    if options.arch:
        if str(options.source) != "finetune":
            raise ConfigError(f"--arch {options.arch}: only for `ditbench show finetune`")
        print(example(options.arch), end="")
        return 0
    if str(options.source) in MODELS:
        return _show_keys(str(options.source))
    if is_run(options.source):
        config = RunFolder(options.source).config()
    else:
        config = load(options.source, options.overrides)
    if options.paths:
        found = (path for path in config_paths(config).values() if Path(path).exists())
        print("".join(f"{path}\0" for path in found), end="")
        return 0
    print(dump_yaml(to_tree(config)), end="")
    return 0


def _show_keys(kind: str) -> int:
    for info in keys(kind).values():
        unit = f" {info.unit}" if info.unit else ""
        default = "null" if info.default is None else info.default
        tags = ", ".join(sorted(info.affects)) or "-"
        free = "; free on resume" if info.free else ""
        print(f"{info.name:26} {default}{unit}")
        print(f"    {info.doc}\n    {info.type}; affects {tags}{free}")
    return 0


def _open(options: argparse.Namespace) -> int:
    attempt = open_attempt(
        options.source,
        options.overrides,
        kind=options.kind,
        nodes=options.nodes,
        gpus=int(options.gpus) if options.gpus else None,
        began=options.began,
    )
    if attempt is not None:
        config = RunFolder(attempt.parent.parent).config(int(attempt.name))
        print(config.resources.ranks_per_node or "", attempt, sep="\n")
    return 0


def _close(options: argparse.Namespace) -> int:
    verdict = close_attempt(options.attempt, status=options.status)
    print(verdict.event, verdict.next, verdict.faulty_node)
    return int(verdict.event in ("failed", "superseded"))


if __name__ == "__main__":
    sys.exit(main())
