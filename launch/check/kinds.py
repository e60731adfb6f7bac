"""Recognise what a path holds, for `check`: by its suffix, its first bytes, or its files."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from configs.files import open_regular

CHECKABLE = (
    "a config or a study (.yaml), a batch script, a folder of images or of latents, or a LoRA "
    "(.safetensors); of a run or a study: ditbench runs FOLDER"
)
# Enough files to tell what a folder holds.
_MOST_FILES = 10_000
_STORE = ("index.json", "encoding.json")


def kind_of(path: Path) -> str | None:
    """Return what a path holds, None if unknown."""
    if path.is_dir():
        return _kind_of_folder(path)
    if path.suffix in (".yaml", ".yml"):
        return "config"
    if path.suffix == ".safetensors":
        return "LoRA"
    return "batch script" if _is_script(path) else None


def _is_script(path: Path) -> bool:
    if path.suffix in (".sbatch", ".sh", ".slurm"):
        return True
    try:
        with open_regular(path) as file:
            head = file.read(4096)
    except OSError:
        return False
    return head.startswith(b"#!") or b"#SBATCH" in head


def _kind_of_folder(path: Path) -> str | None:
    # Importing these needs packages, which the check of a script does without.
    from configs.checks.dataset import CAPTION
    from configs.disk import IMAGE_SUFFIXES

    if (path / "config.yaml").is_file() or (path / "cells.tsv").is_file():
        return None
    if any((path / name).is_file() for name in _STORE):
        return "latents"
    files = list(itertools.islice(_files(path), _MOST_FILES))
    images = {file.with_suffix("") for file in files if file.suffix.lower() in IMAGE_SUFFIXES}
    if not images:
        return None
    captions = {file.with_suffix("") for file in files if file.suffix == CAPTION}
    if images & captions:
        return "captioned images"
    is_flat = any(image.parent == path for image in images)
    return "captioned images" if is_flat else "images by class"


def _files(path: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)
