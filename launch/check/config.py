"""Checks of configs."""

import sys
from pathlib import Path

from configs.checks.aitoolkit import check_engine, remarks
from configs.grid.study_file import is_study, load_grid
from configs.load import load
from configs.schema import Finetune, Run
from configs.terminal import plural
from runs.checks.paths import check_model, missing_paths


def check_config(path: Path, overrides: list[str]) -> tuple[str, bool]:
    """Load a config, or a study with all its cells; return what it is, and if its images are here.

    Raise `ConfigError` if it is invalid.
    """
    if is_study(path, overrides):
        configs: list[Run] = [cell.config for cell in load_grid(path, overrides).cells]
        what = f"study of {plural(len(configs), 'cell')}"
    else:
        configs = [load(path, overrides)]
        what = f"config of kind {configs[0].kind}"
    found = dict[str, None]()
    for config in configs:
        if isinstance(config, Finetune):
            check_engine(config, world=config.resources.world)
            check_model(config)
            found |= dict.fromkeys([*missing_paths(config), *remarks(config)])
    for remark in found:
        print(f"remark  {remark}", file=sys.stderr)
    [first, *others] = configs
    images = isinstance(first, Finetune) and not others and first.data.folder
    return what, bool(images) and Path(str(images)).is_dir()
