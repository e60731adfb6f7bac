"""The step of a LoRA of a FLUX.1 of true size with random weights, by the native engine's parts.

    python -m benchmarks.gpu.lora cuda|cpu

Prints one JSON object per size and number of images. bf16 base, rank 16, AdamW, checkpointing of
blocks; docs/measurements/lora-step.md has the counted figures. On a CPU the Flux has two blocks.
"""

import json

import torch
from diffusers import FluxTransformer2DModel

from benchmarks.gpu.kernels import DEVICE, ON_GPU, median_s
from benchmarks.gpu.power import PowerWatch
from configs.schema.finetune import Lora
from finetune.native.lora import LoraWeights, add_learned
from finetune.native.loss import LatentBatch, losses
from train.engine.gradients import clip_factor, gradient_norm, scale_gradients

# Blocks, single blocks, heads; sizes in px with images.
BLOCKS, SINGLE, HEADS = (19, 38, 24) if ON_GPU else (1, 1, 1)
SIZES = ((512, 1), (512, 4), (1024, 1)) if ON_GPU else ((64, 1),)
TEXT_TOKENS = 256


def main() -> None:
    """Time a step of each size."""
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        transformer = FluxTransformer2DModel(
            num_layers=BLOCKS, num_single_layers=SINGLE, num_attention_heads=HEADS
        )
    torch.set_default_dtype(torch.float32)
    transformer.requires_grad_(False).eval()
    transformer.enable_gradient_checkpointing()
    weights = add_learned(transformer, Lora(rank=16), seed=0)
    optimizer = torch.optim.AdamW(weights.parameters(), fused=True)
    for size, images in SIZES:
        batch = random_batch(size, images)

        def step(batch: LatentBatch = batch) -> None:
            take_step(transformer, weights, optimizer, batch)

        if ON_GPU:
            torch.cuda.reset_peak_memory_stats()
        step()  # also fills the caches
        with PowerWatch() as watch:
            taken = median_s(step, calls=3)
        gb = {"gpu_gb": torch.cuda.max_memory_allocated() / 1e9} if ON_GPU else {}
        found = {"name": f"{size} px, {images} images", "step_s": taken} | gb | watch.row
        print(json.dumps(found | {"images_per_s": images / taken}), flush=True)


def take_step(
    transformer: FluxTransformer2DModel,
    weights: LoraWeights,
    optimizer: torch.optim.Optimizer,
    batch: LatentBatch,
) -> None:
    """Take one optimizer step on one microbatch."""
    losses(transformer, batch).mean().backward()
    scale_gradients(weights, clip_factor(gradient_norm(weights), 1.0))
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def random_batch(size: int, images: int) -> LatentBatch:
    """Return random latents and prompts for images of `size` px."""
    latent, noise = torch.randn(2, images, 16, size // 8, size // 8)
    return LatentBatch(
        latent=latent,
        noise=noise,
        t=torch.rand(images),
        prompt=torch.randn(images, TEXT_TOKENS, 4096, dtype=torch.bfloat16),
        pooled=torch.randn(images, 768, dtype=torch.bfloat16),
    ).to(torch.device(DEVICE))


if __name__ == "__main__":
    main()
