"""Losses and samplers agree with diffusers' schedulers, and with closed forms on toy networks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler
from torch import Tensor

from configs.errors import ConfigError
from configs.load import load
from configs.schema import Pretrain
from train.diffusion.ddpm import STEPS, add_noise, alphas_cumprod, ddim, discrete_steps
from train.diffusion.flow import interpolate, solve_ode
from train.diffusion.objective import DiffusionObjective, guided

DDPM = ["objective.kind=ddpm", "objective.timesteps=uniform", "sample.sampler=ddim"]
NULL = 10


def config_of(*overrides: str) -> Pretrain:
    return load(Path("configs/pretrain/digits.yaml"), list(overrides))


def nonlinear(x: Tensor, t: Tensor, label: Tensor) -> Tensor:
    """Stand in for a network: a nonlinear function of all three inputs."""
    return torch.sin(2 * x) + t.view(-1, 1, 1, 1) * torch.cos(label.float().view(-1, 1, 1, 1) + x)


def unguided(label: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return guided(nonlinear, label, null_label=NULL, guidance=1)


def noise_and_label() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 2, 4, 4), torch.tensor([0, 3, 5, 9])


def test_flow_inputs_lie_on_a_straight_line_and_the_target_is_its_velocity() -> None:
    image, noise = torch.randn(3, 1, 4, 4), torch.randn(3, 1, 4, 4)
    x, target = interpolate(image, noise, torch.tensor([0.0, 0.5, 1.0]))
    torch.testing.assert_close(target, noise - image)
    torch.testing.assert_close(x[0], image[0])
    torch.testing.assert_close(x[1], (image[1] + noise[1]) / 2)
    torch.testing.assert_close(x[2], noise[2])


@pytest.mark.parametrize("error", ["l2", "l1"])
def test_the_loss_is_the_mean_error_of_each_image(error: str) -> None:
    config = config_of(f"objective.error={error}")
    image, noise = torch.randn(3, 1, 8, 8), torch.randn(3, 1, 8, 8)
    t, label = torch.tensor([0.1, 0.5, 0.9]), torch.tensor([1, 2, 3])
    losses = DiffusionObjective(config, torch.device("cpu")).losses(
        nonlinear, image, noise, t, label
    )
    x, target = interpolate(image, noise, t)
    difference = nonlinear(x, t, label) - target
    expected = difference**2 if error == "l2" else difference.abs()
    torch.testing.assert_close(losses, expected.mean(dim=(1, 2, 3)))


@pytest.mark.parametrize("heun", [False, True])
@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_solvers_are_exact_on_a_straight_flow_and_guidance_extrapolates(
    guidance: float, heun: bool
) -> None:
    conditional, unconditional = torch.full((2, 1, 2, 2), 2.0), torch.full((2, 1, 2, 2), 1.0)

    def network(x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        is_null = (label == NULL).view(-1, 1, 1, 1)
        return torch.where(is_null, unconditional[:1], conditional[:1]).expand_as(x)

    noise = torch.randn(2, 1, 2, 2)
    predict = guided(network, torch.tensor([1, 2]), null_label=NULL, guidance=guidance)
    images = solve_ode(predict, noise, steps=7, heun=heun)
    velocity = unconditional + guidance * (conditional - unconditional)
    torch.testing.assert_close(images, noise - velocity, atol=1e-5, rtol=1e-5)


def test_guidance_acts_within_its_interval() -> None:
    x, label = noise_and_label()
    calls = list[int]()

    def network(x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        calls.append(len(x))
        return nonlinear(x, t, label)

    def at(t: float, **keys: Any) -> Tensor:
        calls.clear()
        predict = guided(network, label, null_label=NULL, guidance=3, **keys)
        return predict(x, torch.full((4,), t))

    for t, doubled in ((0.1, 4), (0.2, 8), (0.7, 8), (0.8, 4)):
        found = at(t, interval=(0.2, 0.7))
        assert calls == [doubled]  # outside, only the labels are computed
        plain = at(t) if doubled == 8 else nonlinear(x, torch.full((4,), t), label)
        torch.testing.assert_close(found, plain)


def test_euler_agrees_with_diffusers() -> None:
    noise, label = noise_and_label()
    ours = solve_ode(unguided(label), noise, steps=9)
    scheduler = FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(sigmas=torch.linspace(1, 0, 10)[:-1].tolist())
    x = noise
    for t in scheduler.timesteps:
        x = scheduler.step(nonlinear(x, (t / 1000).expand(4), label), t, x).prev_sample
    torch.testing.assert_close(ours, x, rtol=1e-4, atol=1e-4)


def test_heun_has_second_order_and_euler_first() -> None:
    noise, _ = noise_and_label()

    def smooth(x: Tensor, t: Tensor) -> Tensor:
        return torch.cos(3 * t).view(-1, 1, 1, 1) * x

    exact = noise * np.exp(-np.sin(3) / 3)

    def error(steps: int, *, heun: bool) -> float:
        images = solve_ode(smooth, noise, steps=steps, heun=heun)
        return float((images - exact).abs().max())

    assert error(20, heun=False) / error(40, heun=False) == pytest.approx(2, rel=0.1)
    assert error(20, heun=True) < error(20, heun=False) / 5


@pytest.mark.parametrize("clamp", [False, True])
def test_ddim_agrees_with_diffusers(clamp: bool) -> None:
    noise, label = noise_and_label()
    scheduler = diffusers_ddim(clamp=clamp)
    torch.testing.assert_close(
        alphas_cumprod().float(), scheduler.alphas_cumprod, rtol=1e-3, atol=1e-7
    )
    ours = ddim(
        unguided(label),
        noise,
        alpha_bar=scheduler.alphas_cumprod.double(),
        steps=25,
        clamp=clamp,
    )
    scheduler.set_timesteps(25)
    x = noise
    for t in scheduler.timesteps:
        x = scheduler.step(nonlinear(x, (t / STEPS).expand(4), label), t, x).prev_sample
    # The first step divides by a signal of 0.6 %, where roots in float32 and float64 differ.
    torch.testing.assert_close(ours, x, rtol=1e-2, atol=1e-2)


def diffusers_ddim(*, clamp: bool) -> DDIMScheduler:
    return DDIMScheduler(
        beta_start=1e-4,
        beta_end=0.02,
        beta_schedule="linear",
        timestep_spacing="trailing",
        clip_sample=clamp,
    )


def test_noisy_images_agree_with_diffusers() -> None:
    image, _ = noise_and_label()
    noise, step = torch.randn_like(image), torch.tensor([0, 10, 500, 990])
    x = add_noise(image, noise, alphas_cumprod()[step])
    torch.testing.assert_close(x, diffusers_ddim(clamp=False).add_noise(image, noise, step))


def test_every_time_maps_to_one_of_the_thousand_steps() -> None:
    t = torch.tensor([0.0, 0.00099, 0.001, 0.5, 0.99999, 1.0])
    assert discrete_steps(t).tolist() == [0, 0, 1, 500, 999, 999]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["objective.kind=ddpm", "sample.sampler=ddim"], "logit_normal is for flow; set uniform"),
        ([*DDPM[:2]], "sample.sampler euler does not sample objective.kind ddpm; set ddim"),
        (["sample.sampler=ddim"], "ddim does not sample objective.kind flow; set euler or heun"),
    ],
)
def test_keys_that_do_not_fit_each_other_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(*overrides)
