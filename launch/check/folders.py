"""Checks of configs, of the folders of runs and studies, and of LoRA files."""

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from configs.checks.aitoolkit import check_engine, check_keys
from configs.disk import TensorEntry, read_safetensors_header
from configs.errors import ConfigError
from configs.grid.study_file import is_study, load_grid
from configs.load import load
from configs.schema import Finetune, Run
from configs.terminal import plural
from runs.folder import RunFolder, is_run
from runs.records import read_records
from runs.study_folder import StudyFolder

# The two matrices of a layer's update, by the names of diffusers, ComfyUI and kohya.
_MATRIX = re.compile(r"(.+)\.(lora_A|lora_B|lora_down|lora_up)\b.*")
_DOWN = ("lora_A", "lora_down")
# What was checked, and its problems.
Checked = tuple[str, list[str]]


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
    for config in configs:
        if isinstance(config, Finetune):
            check_keys(config)
            check_engine(config, world=config.resources.world)
    [first, *others] = configs
    images = isinstance(first, Finetune) and not others and first.data.folder
    return what, bool(images) and Path(str(images)).is_dir()


def check_run(path: Path) -> Checked:
    """Read the config, the manifest and every record of a run; raise `ConfigError` if invalid."""
    run = RunFolder(path)
    config, odd = run.config(), list[int]()
    run.manifest()
    count = sum(1 for _ in read_records(run.metrics_file, odd=odd))
    attempts = plural(len(run.attempts()), "attempt")
    what = f"run of kind {config.kind}, {attempts}, {plural(count, 'record')}"
    return what, [f"metrics.jsonl:{number}: not a record; it is skipped" for number in odd]


def check_study(path: Path) -> Checked:
    """Read a study and the runs of its cells."""
    study = StudyFolder(path)
    study.study()
    rows, problems = study.rows(), []
    for row in rows:
        try:
            if not is_run(study.cell(row.cell)):
                raise ConfigError("no run in it")
            problems += [f"{row.cell}: {one}" for one in check_run(study.cell(row.cell))[1]]
        except ConfigError as error:
            problems.append(f"{row.cell}: {error}")
    return f"folder of a study, {plural(len(rows), 'run')}", problems


def check_lora(path: Path) -> Checked:
    """Read the header of a LoRA file, and check that both matrices of each layer fit together."""
    header = read_safetensors_header(path)
    layers = defaultdict[str, dict[bool, TensorEntry]](dict)
    for name, tensor in header.tensors.items():
        if match := _MATRIX.fullmatch(name):
            layers[match[1]][match[2] in _DOWN] = tensor
    if not layers:
        raise ConfigError(f"{path}: {plural(len(header.tensors), 'tensor')}, none of a LoRA")
    ranks, problems = set[int](), list[str]()
    for layer, pair in layers.items():
        shapes = [pair[is_down].shape for is_down in (True, False) if is_down in pair]
        if len(shapes) < 2:
            problems.append(f"{layer}: one of its two matrices is missing")
        elif shapes[0][:1] != shapes[1][1:2]:
            problems.append(f"{layer}: its matrices {shapes[0]} and {shapes[1]} share no rank")
        else:
            ranks.update(shapes[0][:1])
    types = ", ".join(sorted({tensor.dtype for tensor in header.tensors.values()}))
    rank = ", ".join(map(str, sorted(ranks))) or "unknown"
    return f"LoRA of {plural(len(layers), 'layer')}, rank {rank}, {types}", problems


CHECKS: dict[str, Callable[[Path], Checked]] = {
    "run": check_run,
    "study folder": check_study,
    "LoRA": check_lora,
}
