"""Checks of configs and of LoRA files."""

import sys
from pathlib import Path

from configs.checks.aitoolkit import check_engine, remarks
from configs.checks.lora import matrices
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


def check_lora(path: Path) -> int:
    """Print what a LoRA file holds, and its problems: matrices of a layer that do not fit."""
    layers = matrices(path)
    ranks, problems = set[int](), list[str]()
    for layer, pair in layers.items():
        shapes = [pair[is_down].shape for is_down in (True, False) if is_down in pair]
        if len(shapes) < 2:
            problems.append(f"{layer}: one of its two matrices is missing")
        elif shapes[0][:1] != shapes[1][1:2]:
            problems.append(f"{layer}: its matrices {shapes[0]} and {shapes[1]} share no rank")
        else:
            ranks.update(shapes[0][:1])
    types = ", ".join(sorted({each.dtype for pair in layers.values() for each in pair.values()}))
    rank = ", ".join(map(str, sorted(ranks))) or "unknown"
    for problem in problems:
        print(f"{path}: {problem}")
    what = f"LoRA of {plural(len(layers), 'layer')}, rank {rank}, {types}"
    print(f"{path}: {what}{'' if problems else ': good'}", flush=True)
    return int(bool(problems))
