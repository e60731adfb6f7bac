"""The gradient noise measured during training equals that of per-sample gradients."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from analysis.gradient_noise.records import gram_sums_from_norms
from analysis.stats.noise_scale import noise_scale
from configs.checks.batch import divide
from configs.load import load
from configs.schema import Pretrain
from train.data.catalog import open_source
from train.data.loader import Microbatch
from train.data.source import training_split
from train.diffusion.objective import DiffusionObjective
from train.diffusion.timesteps import Bins, bin_indices
from train.engine.distributed import process_group, read_ranks
from train.engine.gradients import squared_gradient_norm, sum_of_squares
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import AccumulationHook, make_hook
from train.model.build import build_network
from train.model.dit import DiT
from train.model.parallelize import apply_activation_checkpointing
from train.parts import Pretraining
from train.parts.noise import OnlineNoise
from train.pretrain.train_state import GradientSummary, TrainState, make_train_state

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = Path("configs/pretrain/digits.yaml")
SMALL = ["model.width=32", "model.depth=2", "model.heads=2", "gns.enabled=true", "gns.bins=4"]


def config_of(*keys: str) -> Pretrain:
    config = load(CONFIG, [*SMALL, *keys])
    assert isinstance(config, Pretrain)
    return config


@pytest.fixture(scope="module")
def network() -> DiT:
    """A small DiT with open gates, as after some training."""
    found = build_network(config_of())
    torch.manual_seed(1)
    for parameter in found.parameters():
        nn.init.normal_(parameter, std=0.2)
    assert isinstance(found, DiT)
    return found


@pytest.fixture(autouse=True)
def _no_hooks_stay(network: DiT) -> Iterator[None]:
    yield
    network.zero_grad()
    for module in network.modules():
        module._forward_hooks.clear()


def batch_of(n: int, *, weighted: bool = False) -> Microbatch:
    torch.manual_seed(2)
    return Microbatch(
        image=torch.randn(n, 1, 8, 8),
        noise=torch.randn(n, 1, 8, 8),
        t=torch.rand(n),
        label=torch.randint(10, (n,)),
        weight=torch.rand(n) + 0.5 if weighted else None,
    )


def losses_of(network: nn.Module, batch: Microbatch) -> Tensor:
    objective = DiffusionObjective(config_of(), torch.device("cpu"))
    losses = objective.losses(network, batch.image, batch.noise, batch.t, batch.label)
    return losses if batch.weight is None else losses * batch.weight


def per_sample(network: DiT, batch: Microbatch) -> Tensor:
    """Return the adaLN gradients of each image's own loss `[m, all]`, by torch.func."""
    weights = dict(network.named_parameters())
    chosen = {name: weight for name, weight in weights.items() if "modulation" in name}

    def loss(some: dict[str, Tensor], image: Tensor, noise: Tensor, t: Tensor, label: Tensor):
        def run(*inputs: Tensor) -> Tensor:
            return functional_call(network, weights | some, inputs)

        objective = DiffusionObjective(config_of(), torch.device("cpu"))
        return objective.losses(run, image[None], noise[None], t[None], label[None])[0]

    # Flash attention has no vmap rule.
    with sdpa_kernel(SDPBackend.MATH):
        each = vmap(grad(loss), in_dims=(None, 0, 0, 0, 0))(
            chosen, batch.image, batch.noise, batch.t, batch.label
        )
    return torch.cat([gradient.flatten(1) for gradient in each.values()], dim=1)


def gram_sums(network: DiT, batch: Microbatch, *, factor: float = 0.25) -> Tensor:
    gram = AdalnGram(network, bins=Bins(count=4), device=torch.device("cpu"))
    gram.before_forward()
    (losses_of(network, batch).sum() * factor).backward()
    gram.after_backward(batch.t, batch.weight, factor=factor)
    return gram.sums


def expected_sums(network: DiT, batch: Microbatch) -> Tensor:
    each = per_sample(network, batch).detach().double()
    gram = each @ each.T
    indices = bin_indices(batch.t, torch.from_numpy(Bins(count=4).edges))
    rows: list[list[float]] = [[], [], [], []]
    for k in range(4):
        part = gram[indices == k][:, indices == k]
        n = len(part)
        values = (part.sum() - part.trace(), n * (n - 1), part.trace(), n)
        for row, value in zip(rows, values, strict=True):
            row.append(float(value))
    weights = torch.ones(len(gram)) if batch.weight is None else batch.weight.double()
    weighted = gram * torch.outer(weights, weights)
    whole = [float(weighted.sum() - weighted.trace()), len(gram) * (len(gram) - 1.0)]
    return torch.tensor([*itertools.chain(*rows), *whole], dtype=torch.float64)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_the_gram_of_one_backward_is_that_of_per_sample_gradients(
    network: DiT, weighted: bool
) -> None:
    batch = batch_of(24, weighted=weighted)
    torch.testing.assert_close(
        gram_sums(network, batch), expected_sums(network, batch), rtol=1e-5, atol=1e-9
    )


def test_recomputed_blocks_are_counted_once() -> None:
    config = config_of("activation_checkpointing.mode=full")
    plain, again = build_network(config), build_network(config)
    apply_activation_checkpointing(list(again.blocks), config.activation_checkpointing)
    batch = batch_of(8)
    torch.testing.assert_close(gram_sums(again, batch), gram_sums(plain, batch))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_compiled_blocks_are_counted_too() -> None:
    plain, compiled = build_network(config_of()), build_network(config_of())
    batch = batch_of(8)
    expected = gram_sums(plain, batch)
    for block in compiled.blocks:
        block.compile()
    torch.testing.assert_close(gram_sums(compiled, batch), expected, rtol=1e-4, atol=1e-9)


def test_a_bin_with_one_image_has_no_products() -> None:
    sums = gram_sums(build_network(config_of()), batch_of(1)).view(-1)
    assert sums[4:8].tolist() == [0] * 4
    assert sums[12:16].sum() == 1


def test_accumulating_in_the_hook_changes_no_bit_of_the_gradient(network: DiT) -> None:
    parts = [batch_of(4), batch_of(4, weighted=True), batch_of(4)]
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
        gram_sums_from_norms(
            torch.tensor(small).double().numpy(),
            torch.tensor(big).double().numpy(),
            count=count,
            batch=batch,
        )
    )
    assert found.g2.value == pytest.approx(g2, rel=0.02)
    assert found.s.value == pytest.approx(s, rel=0.02)


def test_norms_of_large_tensors_are_exact_on_a_cpu() -> None:
    torch.manual_seed(0)
    parts = [torch.randn(1_000_003), torch.randn(7, 5).t(), torch.randn(())]
    exact = sum(float(part.double().square().sum()) for part in parts)
    assert float(sum_of_squares(parts)) == pytest.approx(exact, rel=1e-6)


@pytest.fixture
def measuring() -> Iterator[Callable[..., tuple[OnlineNoise, TrainState]]]:
    """Return the part of noise, on a network with open gates, in the config with more keys."""
    ranks = read_ranks()

    def make(*keys: str) -> tuple[OnlineNoise, TrainState]:
        config = config_of("train.global_batch=8", "train.micro_batch=4", *keys)
        layout = divide(config, world=1)
        state = make_train_state(config, layout=layout, ranks=ranks)
        torch.manual_seed(1)
        for parameter in state.network.parameters():
            nn.init.normal_(parameter, std=0.2)
        source = open_source(config.data)
        images = training_split(source, config.data)
        attempt: Any = SimpleNamespace(config=config, ranks=ranks)
        context: Any = SimpleNamespace(attempt=attempt, layout=layout)
        training = Pretraining(context=context, train_state=state, source=source, images=images)
        return OnlineNoise(training), state

    with process_group(ranks):
        yield make


def online_fields(noise: OnlineNoise, state: TrainState, *, scale: float, good: bool) -> dict:
    """Return the fields of two steps of two microbatches; the second step may overflow."""
    for counted in (True, good):
        for _ in range(2):
            batch = batch_of(4)
            noise.before_microbatch()
            actual = scale if counted else float("inf")
            (losses_of(state.network, batch).sum() * actual / 8).backward()
            noise.after_microbatch(batch, scale / 8)
        noise.after_backward()
        squares = squared_gradient_norm(state.network)
        norm = squares.sqrt() / scale
        summary = GradientSummary(squared_norm=squares, norm=norm, scale=torch.tensor(scale))
        noise.after_update(1, summary)
        state.network.zero_grad()
    return noise.fields()["gns"]


def test_the_scale_of_fp16_is_undone(measuring: Callable) -> None:
    plain, scaled = (
        online_fields(*measuring(), scale=scale, good=True) for scale in (1.0, 2.0**10)
    )
    for name in ("small", "big"):
        assert scaled[name] == pytest.approx(plain[name], rel=1e-5)
    assert scaled["bins"]["squares"] == pytest.approx(plain["bins"]["squares"], rel=1e-5)


def test_a_step_that_overflowed_is_left_out_and_counted(measuring: Callable) -> None:
    found, whole = (online_fields(*measuring(), scale=2.0**10, good=good) for good in (False, True))
    assert (found["steps"], found["skipped"]) == (1, 1)
    assert found["small"] == pytest.approx(whole["small"])
    assert sum(found["bins"]["counts"]) == 8
