"""Check a latent store or an image folder, and print each problem with its fix.

    ditbench check STORE [--vae FOLDER] [--fast]
    ditbench check IMAGES [--fast]

Latents are checked by reading samples of them, not by trusting the store's index.
"""

import sys
from pathlib import Path

from configs.errors import DataError
from configs.terminal import command_parser
from train.data.folder import ImageFolder, list_images
from train.data.latents import checks
from train.data.latents.store import ENCODING, INDEX, StoreIndex, read_index


def main(arguments: list[str]) -> int:
    """Run the checks; return 0 if there is no problem, else 1."""
    parser = command_parser("check", __doc__)
    parser.add_argument("path", type=Path, help="latent store or image folder")
    parser.add_argument("--vae", type=Path, help="folder of the VAE, if it has moved")
    parser.add_argument("--fast", action="store_true", help="check sizes and samples only")
    options = parser.parse_args(arguments)
    path, fast = options.path, options.fast
    try:
        if any((path / name).is_file() for name in (INDEX, ENCODING)):
            index = read_index(path)
            problems = checks.store_problems(path, index, fast=fast)
            problems += checks.vae_problems(index, vae=options.vae)
            print(_summary(index), file=sys.stderr)
        else:
            problems = folder_problems(path, fast=fast)
    except DataError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"{path}: {problem}")
    if not problems:
        print(f"{path}: no problems found{' (not every byte was read)' if fast else ''}")
    return 1 if problems else 0


def folder_problems(folder: Path, *, fast: bool) -> list[str]:
    """Check an image folder; `fast` opens only a sample of its files."""
    if not folder.is_dir():
        return ["no such folder"]
    listing = list_images(folder)
    count = len(listing.files)
    images = ImageFolder(listing, size=32, channels=3, classes=len(listing.names))
    problems = []
    for index in checks.sample_indices(count, checks.QUICK_SAMPLE if fast else count):
        try:
            images[int(index)]
        except DataError as error:
            problems.append(f"{error}; replace or remove it")
    return problems


def _summary(index: StoreIndex) -> str:
    shape = " x ".join(map(str, index.shape))
    flips = ", mirrored too" if index.flips == 2 else ""
    return (
        f"{index.examples} latents of {shape} {index.dtype}{flips}, {index.classes} classes, "
        f"{len(index.shards)} shards, by {index.vae.name} at {index.precision}"
    )
