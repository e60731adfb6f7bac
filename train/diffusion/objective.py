"""The training objective of a config: losses, and samples of a network trained with it."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from configs.schema import Pretrain
from train.diffusion import ddpm, flow

Denoiser = Callable[[Tensor, Tensor, Tensor], Tensor]

# Pixel values end at -1 and 1; latents have no such limits.
_PIXEL_SOURCES = ("digits", "cifar10", "folder")


class DiffusionObjective:
    """Rectified flow or DDPM as a config asks for it, on one device."""

    def __init__(self, config: Pretrain, device: torch.device) -> None:
        self._objective, self._sample = config.objective, config.sample
        self._null_label = config.data.classes
        self._clamp = config.data.source in _PIXEL_SOURCES
        self._shift = time_shift(config)
        self._alpha_bar = ddpm.alphas_cumprod(config.objective.schedule)
        self._alpha_bar_on_device = self._alpha_bar.to(device)

    def losses(
        self, network: Denoiser, image: Tensor, noise: Tensor, t: Tensor, label: Tensor
    ) -> Tensor:
        """Return the weighted error of each image, `[B]` in float32.

        `image` and `noise` are `[B, C, H, W]`; `t` in 0..1 and `label` are `[B]`.
        """
        objective, weight = self._objective, None
        if objective.kind == "flow":
            x, target = flow.interpolate(image, noise, t)
        else:
            step = ddpm.discrete_steps(t)
            alpha_bar, t = self._alpha_bar_on_device[step], step.float() / ddpm.STEPS
            x, target = ddpm.add_noise(image, noise, alpha_bar, objective.prediction)
            if objective.min_snr is not None:
                weight = ddpm.min_snr_weight(alpha_bar, objective.min_snr, objective.prediction)
        difference = network(x, t, label).float() - target
        error = difference.square() if objective.error == "l2" else difference.abs()
        losses = error.flatten(1).mean(dim=1)
        return losses if weight is None else losses * weight

    @torch.no_grad()
    def sample(self, network: Denoiser, noise: Tensor, label: Tensor) -> Tensor:
        """Return images from `noise` `[B, C, H, W]` for `label` `[B]`."""
        predict = guided(
            network, label, null_label=self._null_label, guidance=self._sample.guidance
        )
        if self._objective.kind == "flow":
            heun = self._sample.sampler == "heun"
            return flow.solve_ode(
                predict, noise, steps=self._sample.steps, shift=self._shift, heun=heun
            )
        return ddpm.ddim(
            predict,
            noise,
            alpha_bar=self._alpha_bar,
            prediction=self._objective.prediction,
            steps=self._sample.steps,
            clamp=self._clamp,
        )


def guided(
    network: Denoiser, label: Tensor, *, null_label: int, guidance: float
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the network's output for `label` `[B]` as a function of `x` and `t`, in float32.

    With classifier-free guidance, null + guidance (label - null) (Ho & Salimans 2022).
    """
    null = torch.full_like(label, null_label)

    def predict(x: Tensor, t: Tensor) -> Tensor:
        if guidance == 1:
            return network(x, t, label).float()
        both = network(torch.cat([x, x]), torch.cat([t, t]), torch.cat([label, null]))
        conditional, unconditional = both.float().chunk(2)
        return torch.lerp(unconditional, conditional, guidance)

    return predict


def time_shift(config: Pretrain) -> float:
    """Return a of t' = a t / (1 + (a - 1) t): sqrt(tokens / shift_tokens), or 1 for no shift."""
    base = config.objective.shift_tokens
    if base is None:
        return 1.0
    return math.sqrt((config.data.size // config.model.patch) ** 2 / base)
