"""What the network learns to predict, and how images are drawn from what it has learnt."""

import math

import torch
from torch import Tensor

from configs.schema import Pretrain
from train.diffusion import ddpm, flow
from train.diffusion.guidance import Denoiser

# Pixels end at -1 and 1; latents do not.
_PIXELS = ("digits", "cifar10", "folder")


class DiffusionObjective:
    """The objective of a config, on one device."""

    def __init__(self, config: Pretrain, device: torch.device) -> None:
        self._asked, self._sample = config.objective, config.sample
        self._null_label = config.data.classes
        self._clamp = config.data.source in _PIXELS
        self._shift = time_shift(config)
        self._shares = ddpm.alphas_cumprod(config.objective.schedule)
        self._shares_here = self._shares.to(device)

    def losses(
        self, network: Denoiser, image: Tensor, noise: Tensor, t: Tensor, label: Tensor
    ) -> Tensor:
        """The weighted error of each image, `[B]` in float32.

        `image`, `noise` `[B, C, H, W]`; `t` in 0..1, `label` `[B]`.
        """
        asked, weight = self._asked, None
        if asked.kind == "flow":
            x, target = flow.interpolate(image, noise, t)
        else:
            step = ddpm.discrete_steps(t)
            share, t = self._shares_here[step], step.float() / ddpm.STEPS
            x, target = ddpm.add_noise(image, noise, share, asked.prediction)
            if asked.min_snr is not None:
                weight = ddpm.min_snr_weight(share, asked.min_snr, asked.prediction)
        off = network(x, t, label).float() - target
        error = (off.square() if asked.error == "l2" else off.abs()).flatten(1).mean(dim=1)
        return error if weight is None else error * weight

    @torch.no_grad()
    def sample(self, network: Denoiser, noise: Tensor, label: Tensor) -> Tensor:
        """Images from `noise` `[B, C, H, W]` for `label` `[B]`."""
        asked, steps, guidance = self._asked, self._sample.steps, self._sample.guidance
        if asked.kind == "flow":
            return flow.solve_ode(
                network,
                noise,
                label,
                null_label=self._null_label,
                steps=steps,
                guidance=guidance,
                shift=self._shift,
                heun=self._sample.sampler == "heun",
            )
        return ddpm.ddim(
            network,
            noise,
            label,
            shares=self._shares,
            prediction=asked.prediction,
            null_label=self._null_label,
            steps=steps,
            guidance=guidance,
            clamp=self._clamp,
        )


def time_shift(config: Pretrain) -> float:
    """The a of t' = a t / (1 + (a - 1) t), sqrt(tokens / base tokens); 1 for no shift."""
    base = config.objective.shift_tokens
    if base is None:
        return 1.0
    return math.sqrt((config.data.size // config.model.patch) ** 2 / base)
