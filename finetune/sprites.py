"""Sprites of 8 x 8 squares: the subject of the tiny Flux's images, and what its base can draw."""

from pathlib import Path

import numpy as np
import torch
from diffusers import FluxTransformer2DModel
from numpy.typing import NDArray
from PIL import Image

from finetune.native.encoders import embed, encode, load_text_encoders, load_vae
from finetune.native.loss import LatentBatch, losses

_SIDE = 8
# The left half of the subject; the right half mirrors it.
_SUBJECT = ("....", ".#..", ".###", ".#.#", ".###", "..#.", "..##", "....")
_YELLOW = (250, 205, 70)
# A caption and the colour behind the subject; the fourth image is wider than the others.
_IMAGES = (
    ("a photo of [trigger]", (25, 40, 110)),
    ("[trigger] on a table", (110, 60, 25)),
    ("a drawing of [trigger] in the rain", (95, 105, 115)),
    ("[trigger] from above", (20, 100, 50)),
    ("[trigger], close up", (100, 20, 90)),
)
_LEARNT, _BATCH = 16, 8


def save_subject(folder: Path, *, side: int) -> None:
    """Save five captioned images of one sprite, `side` pixels high."""
    folder.mkdir(parents=True)
    half = np.array([[cell == "#" for cell in row] for row in _SUBJECT])
    for number, (caption, behind) in enumerate(_IMAGES):
        wide = 3 * side // 2 if number == 3 else side
        squares = _sprite(half, np.array(_YELLOW), np.array(behind), width=_SIDE * wide // side)
        image = Image.fromarray(squares.astype(np.uint8))
        image.resize((wide, side), Image.Resampling.NEAREST).save(folder / f"{number:02d}.png")
        (folder / f"{number:02d}.txt").write_text(caption + "\n", encoding="utf-8")


def _sprite(
    half: NDArray[np.bool_], colour: NDArray[np.int64], behind: NDArray[np.int64], *, width: int
) -> NDArray[np.int64]:
    """Return `[8, width, 3]` of 0..255: a half and its mirror image in the middle."""
    margin = (width - _SIDE) // 2
    is_sprite = np.pad(np.hstack([half, half[:, ::-1]]), ((0, 0), (margin, margin)))
    return np.where(is_sprite[..., None], colour, behind)


def learn_sprites(
    transformer: FluxTransformer2DModel, folder: Path, *, side: int, steps: int
) -> None:
    """Train a transformer to draw random captioned sprites, with the encoders of a model folder."""
    cpu, generator = torch.device("cpu"), np.random.default_rng(1)
    vae, encoders = (load(folder, cpu, torch.float32) for load in (load_vae, load_text_encoders))
    latents, texts = [], []
    for _ in range(_LEARNT):
        half = np.pad(generator.random((_SIDE - 2, _SIDE // 2 - 1)) < 0.5, ((1, 1), (1, 0)))
        colours = generator.integers(120, 256, 3), generator.integers(0, 120, 3)
        squares = torch.from_numpy(_sprite(half, *colours, width=_SIDE)).permute(2, 0, 1)
        pixels = squares.repeat_interleave(side // _SIDE, 1).repeat_interleave(side // _SIDE, 2)
        latents.append(encode(vae, pixels / 127.5 - 1))
        letters = "".join(map(chr, generator.integers(97, 123, 20)))
        texts.append(embed(encoders, letters))
    images, prompts, pooled = (
        torch.stack(parts)
        for parts in (latents, [t["prompt"] for t in texts], [t["pooled"] for t in texts])
    )
    optimizer = torch.optim.AdamW(transformer.parameters(), fused=True)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=steps, pct_start=0.05, cycle_momentum=False
    )
    for _ in range(steps):
        which = torch.randint(_LEARNT, (_BATCH,))
        batch = LatentBatch(
            latent=images[which],
            noise=torch.randn_like(images[which]),
            t=torch.sigmoid(torch.randn(_BATCH)),
            prompt=prompts[which],
            pooled=pooled[which],
        )
        losses(transformer, batch).mean().backward()
        torch.nn.utils.clip_grad_norm_(transformer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
