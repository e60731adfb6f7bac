"""Check configs and explain their keys.

Example: ditbench check configs/pretrain/*.yaml
"""

import argparse
import os
import sys
from pathlib import Path

from configs.checks.aitoolkit import check_engine, check_keys
from configs.disk import make_private
from configs.errors import ConfigError
from configs.grid.study_file import is_study, load_grid
from configs.load import load
from configs.schema import MODELS, Finetune, Run, keys
from configs.terminal import command_parser, guarded


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 for success, 1 for a negative answer, 2 for misuse."""
    options = _parser().parse_args(arguments)

    def act() -> int:
        make_private()
        return int(options.action(options))

    return guarded(act)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("configs", __doc__)
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    check = actions.add_parser("check", help="validate configs and studies")
    check.add_argument("files", nargs="+", metavar="FILE", help="configs, then any key=value")
    check.set_defaults(action=_check)

    schema = actions.add_parser("schema", help="list every key: type, default, what it affects")
    schema.add_argument("kind", nargs="?", default="pretrain", choices=sorted(MODELS))
    schema.set_defaults(action=_schema)
    return parser


def _check(options: argparse.Namespace) -> int:
    bad = 0
    files = [Path(word) for word in options.files if "=" not in word or os.path.exists(word)]
    overrides = [word for word in options.files if Path(word) not in files]
    if not files:
        raise ConfigError(f"{overrides[0]}: names no file; name a config before key=value")
    for file in files:
        try:
            _load(file, overrides)
        except ConfigError as error:
            print(error, file=sys.stderr)
            bad = 2
        else:
            print(f"{file}: good")
    return bad


def _load(file: Path, overrides: list[str]) -> None:
    """Load a config, or a study with all its cells."""
    if is_study(file, overrides):
        configs: list[Run] = [cell.config for cell in load_grid(file, overrides).cells]
    else:
        configs = [load(file, overrides)]
    for config in configs:
        if isinstance(config, Finetune):
            check_keys(config)
            check_engine(config, world=config.resources.world)


def _schema(options: argparse.Namespace) -> int:
    for info in keys(options.kind).values():
        unit = f" {info.unit}" if info.unit else ""
        default = "null" if info.default is None else info.default
        tags = ", ".join(sorted(info.affects)) or "-"
        free = "; free on resume" if info.free else ""
        print(
            f"{info.name:26} {default}{unit}\n    {info.doc}\n    {info.type}; affects {tags}{free}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
