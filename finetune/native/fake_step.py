"""Steps of a LoRA on fake tensors, which hold no data."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from configs.checks.batch import BatchLayout
from configs.schema import Finetune
from finetune.native.base_model import DTYPES
from finetune.native.lora import LEARNED, LoraWeights, activate, add_learned
from finetune.native.loss import LatentBatch, losses
from finetune.native.step import make_optimizer
from train.cost.fake_gpu import fake_ranks, gpu_autocast
from train.cost.fit import Trial
from train.cost.storages import StorageTracker, mark_passes
from train.engine.ema import EMA
from train.engine.gradients import clip_factor, gradient_norm, scale_gradients, sum_gradients


def two_steps(config: Finetune, layout: BatchLayout, sizes: dict[str, Any]) -> tuple[Trial, Trial]:
    """Return the memory and FLOPs of a step of one microbatch, and of one of two.

    The images have the largest size of `data.resolutions`. The first step is left out.
    """
    storages = StorageTracker()
    with fake_ranks(layout.world), _fake_gpu(DTYPES[config.train.precision]), storages:
        transformer = flux_transformer(config, sizes)
        weights = add_learned(transformer, config.lora, seed=config.seed)
        activate(transformer, LEARNED)
        parameters = storages.held
        ema = EMA(weights, decay=config.train.ema_decay, warmup=True)
        average = storages.held - parameters
        optimizer = make_optimizer(weights, config.optimizer)
        for name in ("transformer_blocks", "single_transformer_blocks"):
            for number, block in enumerate(getattr(transformer, name)):
                mark_passes(block, name, number, storages)
        trials = []
        for microbatches in (1, 1, 2):
            storages.segments, storages.flops = [], 0
            before = storages.held
            for number in range(microbatches):
                storages.mark(f"microbatch {number}")
                batch = zero_batch(config, sizes, layout.micro_batch)
                held = storages.held
                per_image = losses(transformer, batch)
                activations = storages.held - held
                per_image.sum().backward()
                del per_image, batch
            gradients = storages.held - before
            storages.mark("update")
            sum_gradients(weights)
            scale_gradients(weights, clip_factor(gradient_norm(weights), 1.0))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            ema.update(1)
            kinds = {
                "parameters": parameters,
                "average": average,
                "optimizer": storages.held - parameters - average,
                "gradients": gradients,
                "activations": activations,
                "numbers": sum(parameter.numel() for parameter in weights.parameters()),
                "flops": storages.flops,
            }
            trials.append(Trial(kinds=kinds, segments=storages.segments))
    return trials[1], trials[2]


def flux_transformer(config: Finetune, sizes: dict[str, Any]) -> FluxTransformer2DModel:
    """Return a base model of these sizes, with weights of no meaning."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[config.train.precision])
    try:
        transformer = FluxTransformer2DModel(**sizes, guidance_embeds=config.flux.variant == "dev")
    finally:
        torch.set_default_dtype(dtype)
    transformer.requires_grad_(False).eval()
    if config.train.gradient_checkpointing:
        transformer.enable_gradient_checkpointing()
    return transformer


def zero_batch(config: Finetune, sizes: dict[str, Any], images: int) -> LatentBatch:
    """Return a microbatch of zeros of the largest size."""
    side, dtype = max(config.data.resolutions) // 8, DTYPES[config.train.precision]
    latent = torch.zeros(images, sizes["in_channels"] // 4, side, side)
    tokens = images, config.flux.text_tokens, sizes["joint_attention_dim"]
    return LatentBatch(
        latent=latent,
        noise=torch.zeros_like(latent),
        t=torch.zeros(images),
        prompt=torch.zeros(tokens, dtype=dtype),
        pooled=torch.zeros(images, sizes["pooled_projection_dim"], dtype=dtype),
    )


@contextlib.contextmanager
def _fake_gpu(dtype: torch.dtype) -> Iterator[None]:
    """Imitate a GPU on fake tensors; weights need no values."""

    def attention(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
        same = [each.to(dtype) for each in (query, key, value)]
        output: Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*same)[0]
        return output

    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        gpu_autocast(),
        mock.patch("torch.nn.functional.scaled_dot_product_attention", attention),
        mock.patch.object(LoraWeights, "initialise"),
        # torch cannot move the fake parameters of a module, and peft converts those of adapters.
        mock.patch("torch.nn.Module.to", lambda module, *args, **kwargs: module),
        mock.patch("peft.tuners.tuners_utils.BaseTunerLayer._move_adapter_to_device_of_base_layer"),
    ):
        yield
