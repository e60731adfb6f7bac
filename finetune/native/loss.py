"""The flow-matching loss of Flux on packed latents."""

from dataclasses import dataclass

import torch
from diffusers import FluxPipeline, FluxTransformer2DModel
from torch import Tensor

# The guidance that dev gets in training: 1 is the plain conditional prediction.
_GUIDANCE = 1.0


@dataclass(frozen=True, kw_only=True)
class LatentBatch:
    """`latent` and `noise` `[B, 16, h, w]`, `t` `[B]`, `prompt` `[B, L, D]`, `pooled` `[B, P]`."""

    latent: Tensor
    noise: Tensor
    t: Tensor
    prompt: Tensor
    pooled: Tensor

    def to(self, device: torch.device) -> "LatentBatch":
        """Return the batch on a device, without waiting for it to arrive there."""

        def moved(tensor: Tensor) -> Tensor:
            is_copied = device.type == "cuda" and tensor.device.type == "cpu"
            return (tensor.pin_memory() if is_copied else tensor).to(device, non_blocking=True)

        return LatentBatch(**{name: moved(tensor) for name, tensor in vars(self).items()})


def losses(transformer: FluxTransformer2DModel, batch: LatentBatch) -> Tensor:
    """Return the mean squared error of the predicted velocity per image, `[B]` float32.

    Rectified flow (Liu et al. 2022): the target is noise - latent, at (1-t) latent + t noise. The
    transformer computes in the type of `prompt`, which is its own.
    """
    t = batch.t[:, None, None, None]
    mixed = (1 - t) * batch.latent + t * batch.noise
    count, channels, height, width = mixed.shape
    device, dtype = mixed.device, mixed.dtype
    guidance = None
    if transformer.config.guidance_embeds:
        guidance = torch.full((count,), _GUIDANCE, device=device)
    predicted = transformer(
        hidden_states=_pack(mixed).to(batch.prompt.dtype),
        encoder_hidden_states=batch.prompt,
        pooled_projections=batch.pooled,
        timestep=batch.t,
        guidance=guidance,
        img_ids=image_ids(height // 2, width // 2, device=device, dtype=dtype),
        txt_ids=torch.zeros(batch.prompt.shape[1], 3, device=device, dtype=dtype),
        return_dict=False,
    )[0]
    target = _pack(batch.noise - batch.latent)
    assert channels * 4 == target.shape[2]
    errors = (predicted.float() - target).square()
    return errors.flatten(1).mean(dim=1)


def image_ids(rows: int, columns: int, *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the position `[rows columns, 3]` of each token: 0, its row and its column.

    diffusers makes them on the CPU, and their copy waits until the GPU has nothing to do.
    """
    row = torch.arange(rows, device=device, dtype=dtype).repeat_interleave(columns)
    column = torch.arange(columns, device=device, dtype=dtype).repeat(rows)
    return torch.stack([torch.zeros_like(row), row, column], dim=1)


def _pack(latent: Tensor) -> Tensor:
    """Turn each 2 x 2 patch of a latent `[B, C, h, w]` into a token: `[B, h/2 w/2, 4C]`."""
    return FluxPipeline._pack_latents(latent, *latent.shape)
