"""The gradient noise measured during training is that of its microbatches."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from analysis.stats.noise_scale import noise_scale
from configs.load import load
from configs.schema import Pretrain
from train.data.loader import Microbatch
from train.diffusion.objective import DiffusionObjective
from train.engine.gradients import squared_gradient_norm, sum_of_squares
from train.gradient_noise.hooks import AccumulationHook, make_hook
from train.model.build import build_network
from train.model.dit import DiT

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = Path("configs/pretrain/digits.yaml")
SMALL = ["model.width=32", "model.depth=2", "model.heads=2", "gns.enabled=true"]


def config_of(*keys: str) -> Pretrain:
    return load(CONFIG, [*SMALL, *keys])


@pytest.fixture(scope="module")
def network() -> DiT:
    """A small DiT with open gates, as after some training."""
    found = build_network(config_of())
    torch.manual_seed(1)
    for parameter in found.parameters():
        nn.init.normal_(parameter, std=0.2)
    return found


@pytest.fixture(autouse=True)
def _no_hooks_stay(network: DiT) -> Iterator[None]:
    yield
    network.zero_grad()


def batch_of(n: int) -> Microbatch:
    torch.manual_seed(2)
    return Microbatch(
        image=torch.randn(n, 1, 8, 8),
        noise=torch.randn(n, 1, 8, 8),
        t=torch.rand(n),
        label=torch.randint(10, (n,)),
    )


def losses_of(network: nn.Module, batch: Microbatch) -> Tensor:
    objective = DiffusionObjective(config_of(), torch.device("cpu"))
    return objective.losses(network, batch.image, batch.noise, batch.t, batch.label)


def test_accumulating_in_the_hook_changes_no_bit_of_the_gradient(network: DiT) -> None:
    parts = [batch_of(4), batch_of(2), batch_of(4)]
    for part in parts:
        losses_of(network, part).sum().backward()
    expected = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()
    hook = make_hook(network, network)
    singles = []
    for part in parts:
        losses_of(network, part).sum().backward()
        singles.append(float(squared_gradient_norm(network)))
        hook.after_backward()
    hook.restore_gradients()
    assert all(torch.equal(a, b.grad) for a, b in zip(expected, network.parameters(), strict=True))
    assert float(hook.take_squares()) == pytest.approx(sum(singles), rel=1e-12)
    assert float(hook.take_squares()) == 0


def test_the_hook_recovers_the_known_noise_of_linear_regression_over_2000_steps() -> None:
    d, count, batch, steps = 6, 4, 16, 2000
    truth = torch.full((d,), 0.4)
    g2, s = float(truth @ truth), (d + 1) * float(truth @ truth) + d
    model, generator = nn.Linear(d, 1, bias=False), torch.Generator().manual_seed(0)
    hook, small, big = AccumulationHook(model), [], []
    with torch.no_grad():
        model.weight.copy_(truth[None])
    for _ in range(steps):
        for _ in range(count):
            x = torch.randn(batch, d, generator=generator)
            error = model(x)[:, 0] - torch.randn(batch, generator=generator)
            (error.square().mean() / 2 / count).backward()
            hook.after_backward()
        hook.restore_gradients()
        small.append(float(hook.take_squares()) * count**2 / count)
        big.append(float(squared_gradient_norm(model)))
        model.zero_grad()
    found = noise_scale(
        torch.tensor(small).double().numpy(),
        torch.tensor(big).double().numpy(),
        count=count,
        batch=batch,
    )
    assert found.g2.value == pytest.approx(g2, rel=0.02)
    assert found.s.value == pytest.approx(s, rel=0.02)


def test_norms_of_large_tensors_are_exact_on_a_cpu() -> None:
    torch.manual_seed(0)
    parts = [torch.randn(1_000_003), torch.randn(7, 5).t(), torch.randn(())]
    exact = sum(float(part.double().square().sum()) for part in parts)
    assert float(sum_of_squares(parts)) == pytest.approx(exact, rel=1e-6)
