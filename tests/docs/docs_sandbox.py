"""A folder that holds every run, study and file that the commands of README and docs name.

It has links to configs, jobs and env of the tree, and a copy of docs, which commands write to.
"""

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from analysis.commands.archive import pack
from configs.yaml12 import dump_yaml
from runs.folder import ROOT, RunFolder, find_runs
from runs.study_folder import StudyFolder, StudyRow
from tests.analysis.commands.test_finetune import A40, A100, drawn, tuned
from tests.analysis.commands.test_noise import planted as plant_noise
from tests.analysis.foreign_logs import synthetic_log, titan
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

SCRIPT = """#!/bin/bash
#SBATCH --gpus-per-node=a40:1
python train.py
"""


def build(folder: Path, commands: Iterable[str]) -> Path:
    """Make a folder in which these commands can be typed."""
    for name in ("configs", "runs", "jobs", "env"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "docs", folder / "docs")
    typed = "\n".join(commands)
    logs = folder / "logs"
    for name in ("A", "B", "RUN"):
        plant_run(logs / name, seed=len(name))
    for name in set(re.findall(r"logs/([\w.-]+-ID)\b", typed)):
        plant_grid(logs / name)
    plant_branches(logs / "STUDY")
    for name in set(re.findall(r"[\w./-]+\.tar\.xz", typed)):
        pack(logs / "STUDY", list(find_runs(logs / "STUDY")), folder / name)
    plant_tunings(logs)
    plant_files(folder)
    return folder


def plant_run(folder: Path, *, seed: int) -> Path:
    """A run with everything a command can read: noise and validation."""
    plant_noise(folder, steps=60, seed=seed)
    evaluate(folder)
    (folder / "attempts" / "001" / "output.log").write_text("step 60\n")
    return folder


def evaluate(folder: Path) -> None:
    """Add a validation loss and distances of samples after every fifth record of a run."""
    file = RunFolder(folder).metrics_file
    lines: list[dict[str, Any]] = []
    for line in map(json.loads, file.read_text().splitlines()):
        lines.append(line)
        if "loss" in line and len(lines) % 6 == 0:
            kept = {key: line[key] for key in ("time", "attempt", "step", "images")}
            lines.append(kept | {"validation_loss": line["loss"]})
            distances = {"fid": 21 * line["loss"], "fid_inf": 20 * line["loss"], "fid_samples": 100}
            blocks = {"fid_blocks": [20 * line["loss"], 20.1 * line["loss"]], "fid_facts": {}}
            lines.append(kept | distances | blocks)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def plant_grid(folder: Path) -> Path:
    """Three cells, twice each: plain, compiled, and plain again."""
    cells: dict[str, dict[str, Any]] = {}
    for repeat, second in enumerate(("", "_2")):
        for cell, compiled in (("A", False), ("B", True), ("CELL", False)):
            rate, batch = 6.0 if compiled else 4.0, 32 if cell == "CELL" else 64
            name = f"{cell}{second}"
            overrides = (f"train.compile={str(compiled).lower()}",)
            truth = SyntheticRun(
                intervals=40, steps_per_s=rate, overrides=overrides, seed=repeat, global_batch=batch
            )
            evaluate(generate_run(StudyFolder(folder).cell(name), truth))
            cells[name] = {"train.compile": compiled, "train.global_batch": batch}
    (folder / "cells" / "CELL" / "attempts" / "001" / "output.log").write_text("step 400\n")
    return as_study(folder, cells)


def plant_branches(folder: Path) -> Path:
    """Four batches, twice each, that reach a validation loss of 0.5 by their critical batch."""
    cells: dict[str, dict[str, Any]] = {}
    for seed in (0, 1):
        for batch in (16, 32, 64, 128):
            pace = batch / (1 + batch / 50)
            truth = SyntheticRun(
                intervals=60, global_batch=batch, seed=seed,
                loss=lambda step, pace=pace: 0.2 + 0.8 / np.sqrt(1 + step * pace / 600),
            )  # fmt: skip
            name = f"bs{batch}_s{seed}"
            evaluate(generate_run(StudyFolder(folder).cell(name), truth))
            cells[name] = {"train.global_batch": batch, "seed": seed}
    return as_study(folder, cells)


def as_study(folder: Path, cells: dict[str, dict[str, Any]]) -> Path:
    """Write the study file and the rows of a study's cells."""
    axes = {key: list({str(one[key]): one[key] for one in cells.values()}.values())
            for key in next(iter(cells.values()))}  # fmt: skip
    StudyFolder(folder).study_file.write_text(
        dump_yaml({"kind": "study", "base": "x.yaml", "axes": axes})
    )
    StudyFolder(folder).write_rows(
        StudyRow(index=n, order=n, cell=cell, repeat=1, shape="s", digest="", levels=levels)
        for n, (cell, levels) in enumerate(cells.items())
    )
    return folder


def plant_tunings(logs: Path) -> None:
    """Runs of a LoRA on two GPUs, and drawings from them."""
    for gpu, label, rate in ((A40, "a40", 0.28), (A100, "a100", 0.5)):
        tuned(logs / f"{label}-500", gpu=gpu, steps=500, steps_per_s=rate)
        drawn(logs / f"infer-{label}")


def plant_files(folder: Path) -> None:
    """Files other than runs: torchtitan logs, a script, captioned images."""
    for name, seed in (("eager", 0), ("compiled", 1)):
        (folder / f"{name}.log").write_bytes(titan(synthetic_log(seed=seed)))
    lines = [f"step {step} of 500 loss {2 - step / 500:.3f}\n" for step in range(0, 500, 10)]
    (folder / "train.log").write_text("".join(lines))
    (folder / "my.sbatch").write_text(SCRIPT)
    (images := folder / "data" / "subject").mkdir(parents=True)
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 256, (512, 512, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / f"{number}.png")
        (images / f"{number}.txt").write_text(f"[trigger], number {number}\n")
