"""`python -m finetune tiny FOLDER`: a random Flux, five captioned images, and an assistant LoRA.

Whatever reads a real Flux reads this one; only its weights mean nothing. `--size mid` has blocks of
the real shapes, but few.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from configs.errors import ConfigError
from finetune.libraries import hide_progress_bars
from finetune.random_flux import SHAPES, Shape, save_model

_CAPTIONS = (
    "a photo of [trigger]",
    "[trigger] on a table",
    "a drawing of [trigger] in the rain",
    "[trigger] from above",
    "[trigger], close up",
)


def main(arguments: list[str]) -> int:
    """`python -m finetune tiny FOLDER [--size mid] [--variant dev]`."""
    parser = argparse.ArgumentParser(
        prog="python -m finetune tiny",
        description="Make a random Flux, five images with captions, and an assistant LoRA in a "
        "new folder. Example: python -m finetune tiny logs/tiny-flux",
    )
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--size", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--variant", choices=("schnell", "dev"), default="schnell")
    options = parser.parse_args(arguments)
    hide_progress_bars()
    make(options.folder, size=options.size, variant=options.variant)
    print(options.folder)
    return 0


def make(folder: Path, *, size: str = "tiny", variant: str = "schnell", seed: int = 0) -> None:
    """Make `model/`, `images/` and `assistant.safetensors` in a folder that is new or empty."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is there already; name a new folder, or remove it")
    shape = SHAPES[size]
    save_images(folder / "images", side=shape.side)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        save_model(folder / "model", shape, variant=variant)
        _save_assistant(folder / "assistant.safetensors", shape)


def save_images(folder: Path, *, side: int) -> None:
    """Five smooth images of different shapes, each with a caption."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number, caption in enumerate(_CAPTIONS):
        coarse = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        size = (side + side // 2 if number == 3 else side, side)
        image = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
        image.save(folder / f"{number:02d}.png")
        (folder / f"{number:02d}.txt").write_text(caption + "\n", encoding="utf-8")


def _save_assistant(file: Path, shape: Shape) -> None:
    """A LoRA of rank 4 on the attention of all blocks, in the keys that diffusers reads.

    ai-toolkit takes its rank from that of the first single block.
    """
    width = shape.heads * shape.head_width
    tensors = {}
    blocks = [f"transformer_blocks.{number}" for number in range(shape.blocks)]
    blocks += [f"single_transformer_blocks.{number}" for number in range(shape.single_blocks)]
    for block in blocks:
        for name in ("to_q", "to_k", "to_v"):
            key = f"transformer.{block}.attn.{name}"
            tensors[f"{key}.lora_A.weight"] = torch.randn(4, width) / width**0.5
            tensors[f"{key}.lora_B.weight"] = torch.randn(width, 4) / 4
    save_file(tensors, str(file))
