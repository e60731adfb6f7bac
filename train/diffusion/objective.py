"""The training objective of a config: losses, and samples of a network trained with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
        self._alpha_bar = ddpm.alphas_cumprod()
        self._alpha_bar_on_device = self._alpha_bar.to(device)
        self._predicts_image = config.objective.prediction == "x"

    def losses(
        self,
        network: Callable[..., Any],
        image: Tensor,
        noise: Tensor,
        t: Tensor,
        label: Tensor,
        *,
        aligned: int | None = None,
        term: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return the error of each image, `[B]` in float32.

        `image` and `noise` are `[B, C, H, W]`; `t` in 0..1 and `label` are `[B]`. `term` is added
        for the tokens `[B, T, width]` after the block `aligned`, if it is given.
        """
        task = self._task(image, noise, t)
        if aligned is None:
            output, tokens = network(task.x, task.t, label), None
        else:
            output, tokens = network(task.x, task.t, label, (aligned,))
        losses = self._error(task.velocity(output) - task.target)
        if term is not None and tokens is not None:
            losses = losses + term(tokens)
        return losses

    def _task(self, image: Tensor, noise: Tensor, t: Tensor) -> "_Task":
        if self._objective.kind == "flow":
            x, target = flow.interpolate(image, noise, t)
            if self._predicts_image:
                target = flow.velocity_to(image, x, t)
            return _Task(x=x, t=t, target=target, predicts_image=self._predicts_image)
        step = ddpm.discrete_steps(t)
        alpha_bar, t = self._alpha_bar_on_device[step], step.float() / ddpm.STEPS
        return _Task(x=ddpm.add_noise(image, noise, alpha_bar), t=t, target=noise)

    def _error(self, difference: Tensor) -> Tensor:
        error = difference.square() if self._objective.error == "l2" else difference.abs()
        return error.flatten(1).mean(dim=1)

    @torch.no_grad()
    def sample(self, network: Denoiser, noise: Tensor, label: Tensor) -> Tensor:
        """Return images from `noise` `[B, C, H, W]` for `label` `[B]`."""
        predict = guided(
            network,
            label,
            null_label=self._null_label,
            guidance=self._sample.guidance,
            interval=(self._sample.guidance_low, self._sample.guidance_high),
        )
        if self._objective.kind == "flow":
            heun = self._sample.sampler == "heun"
            return flow.solve_ode(
                lambda x, t: (
                    flow.velocity_to(predict(x, t), x, t) if self._predicts_image else predict(x, t)
                ),
                noise,
                steps=self._sample.steps,
                heun=heun,
            )
        return ddpm.ddim(
            predict,
            noise,
            alpha_bar=self._alpha_bar,
            steps=self._sample.steps,
            clamp=self._clamp,
        )


@dataclass(frozen=True, kw_only=True)
class _Task:
    """The input `x` and time `t` of the network, and the `target` of its output."""

    x: Tensor
    t: Tensor
    target: Tensor
    predicts_image: bool = False

    def velocity(self, output: Tensor) -> Tensor:
        """Return the network's output in float32 as what `target` is; a flow's is a velocity."""
        output = output.float()
        return flow.velocity_to(output, self.x, self.t) if self.predicts_image else output


def guided(
    network: Denoiser,
    label: Tensor,
    *,
    null_label: int,
    guidance: float,
    interval: tuple[float, float] = (0.0, 1.0),
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the network's output for `label` `[B]` as a function of `x` and `t`, in float32.

    With classifier-free guidance, null + guidance (label - null) (Ho & Salimans 2022). There is no
    guidance at times outside of `interval`, whose ends belong to it (Kynkaanniemi et al. 2024).
    """
    null = torch.full_like(label, null_label)
    low, high = interval

    def predict(x: Tensor, t: Tensor) -> Tensor:
        # All times of a step are equal. To read one waits for the device.
        if guidance == 1 or (interval != (0.0, 1.0) and not low <= float(t[0]) <= high):
            return network(x, t, label).float()
        both = network(torch.cat([x, x]), torch.cat([t, t]), torch.cat([label, null]))
        conditional, unconditional = both.float().chunk(2)
        return torch.lerp(unconditional, conditional, guidance)

    return predict
