"""Gradients that compiled or tensor-parallel code gets wrong end a run before its start."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from configs.checks.batch import divide
from configs.load import expect, load, resolve
from configs.schema import Pretrain
from runs.attempt.close import close_attempt
from runs.folder import RunFolder
from runs.state.reasons import reasons
from tests.real_runs import DIGITS, TINY, events, losses, opened, trained
from train.cost.memory import pretrain_memory
from train.engine.attempt import run_attempt
from train.engine.distributed import Ranks
from train.engine.failure import RunFailure
from train.parts.gradient_check import check_gradients
from train.pretrain import run as pretrain
from train.pretrain.train_state import TrainState, make_train_state

# One worker shares the ranks, and has one group.
pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.xdist_group("ranks")]
ALONE = Ranks(rank=0, world=1, local_rank=0, local_world=1, device=torch.device("cpu"))


def honest(seed: int, *, compiled: bool) -> dict[str, Any]:
    """Draw a small config from those that the schema allows."""
    draw = random.Random(seed)
    objective: dict[str, Any] = {"error": draw.choice(["l2", "l1"])}
    sampler = "euler"
    if draw.random() < 0.5:
        sampler = "ddim"
        objective |= {"kind": "ddpm", "timesteps": "uniform"}
    tree: dict[str, Any] = {"objective": objective, "sample": {"sampler": sampler}}
    if draw.random() < 0.2:
        unet = {"width": draw.choice([16, 64]), "mults": [1, 2], "layers": 1}
        tree["model"] = {"family": "unet", "unet": unet | {"attention": [False, True]}}
    else:
        tree["model"] = {
            "width": draw.choice([32, 64]), "depth": draw.choice([1, 2, 4]), "heads": 2,
            "conditioning": draw.choice(["adaln", "adaln_single"]), "qk_norm": draw.random() < 0.5,
            "mlp": draw.choice(["gelu", "swiglu"]), "positions": draw.choice(["rope", "sincos"]),
        }  # fmt: skip
        mode = draw.choice(["none", "full", "selective"])
        tree["activation_checkpointing"] = {"mode": mode, "every": 2}
    tree["data"] = {"source": "digits", "size": 8, "channels": 1, "classes": 10}
    precision = draw.choice(["fp32", "bf16"])
    batch = draw.choice([1, 3, 16, 64])
    tree["train"] = {"global_batch": batch, "precision": precision, "compile": compiled}
    return tree


def state_of(tree: dict[str, Any]) -> TrainState:
    """A state before the first step."""
    config = resolve(tree, source="test")
    return make_train_state(config, layout=divide(config, world=1), ranks=ALONE)


def small(**train: Any) -> TrainState:
    """A DiT of three blocks at its first weights, most of whose gradients are zero."""
    model = {"width": 32, "depth": 3, "heads": 2, "mlp": "swiglu"}
    data = {"source": "digits", "size": 8, "channels": 1, "classes": 10}
    return state_of({"model": model, "data": data, "train": {"global_batch": 8} | train})


def checked(state: TrainState, **changes: Any) -> dict[str, Any]:
    """The fields of the event, of a network that counts as compiled."""
    train = state.config.train.model_copy(update={"compile": True} | changes)
    found: dict[str, Any] = {}
    context: Any = SimpleNamespace(
        attempt=SimpleNamespace(ranks=ALONE, run=SimpleNamespace(records=list)),
        layout=divide(state.config, world=1),
        metrics=SimpleNamespace(event=lambda name, **fields: found.update(fields)),
    )
    check_gradients(
        context, replace(state, config=state.config.model_copy(update={"train": train}))
    )
    return found


# Every fourth of them is compiled; there are 250.
SEEDS = [pytest.param(seed, marks=pytest.mark.long if seed > 3 else ()) for seed in range(250)]


@pytest.mark.filterwarnings("ignore")  # dynamo warns
@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("seed", SEEDS)
def test_rounding_is_not_taken_for_an_error(seed: int) -> None:
    torch.compiler.reset()
    compiled = seed > 3 and seed % 4 == 0
    found = checked(state_of(honest(seed, compiled=compiled)))
    # Half as much as would be an error, and a quarter of it is rounding itself.
    assert found["error"] < 0.5
    assert found["cosine"] > 0.98
    assert abs(found["norm_ratio"] - 1) < 0.2


@pytest.mark.usefixtures("group")
def test_one_rank_alone_is_checked_without_a_communicator(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("one rank communicates")

    monkeypatch.setattr("train.parts.gradient_check.fully_shard", refuse)
    monkeypatch.setattr("torch.distributed.all_reduce", refuse)
    assert checked(small())["error"] < 0.5


@pytest.mark.usefixtures("group")
def test_weights_and_random_numbers_are_afterwards_as_before() -> None:
    state = small(precision="bf16")
    before = [p.detach().clone().view(torch.int32) for p in state.network.parameters()]
    random_state = torch.get_rng_state()
    checked(state)
    for old, parameter in zip(before, state.network.parameters(), strict=True):
        assert torch.equal(old, parameter.detach().view(torch.int32))
        assert parameter.grad is None
    assert torch.equal(random_state, torch.get_rng_state())


class Scaled(torch.autograd.Function):
    """The identity, with a gradient multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


def never_written(gradient: Tensor) -> Tensor:
    """Lose one of the six parts of a modulation, as in pytorch issue 193061."""
    wrong = gradient.clone()
    wrong[: len(wrong) // 6] = 0
    return wrong


def garbage(gradient: Tensor) -> Tensor:
    """Return memory that nobody wrote, as in pytorch issue 190796."""
    return torch.full_like(gradient, float("nan"))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(
    ("name", "wrong", "precision"),
    [
        ("blocks.1.modulation.weight", never_written, "bf16"),
        ("blocks.1.modulation.bias", garbage, "bf16"),
        ("blocks.0.attention.q_norm.weight", lambda gradient: gradient * 1.25, "bf16"),
        ("blocks.2.mlp.up.weight", lambda gradient: gradient.flip(0), "bf16"),
        ("patches_in.bias", torch.zeros_like, "fp32"),
        ("time.2.weight", lambda gradient: gradient * 1.02, "fp32"),
    ],
)
def test_one_wrong_gradient_is_found_by_its_name(
    name: str, wrong: Callable[[Tensor], Tensor], precision: str
) -> None:
    state = small(precision=precision)
    state.network.get_parameter(name).register_hook(wrong)
    with pytest.raises(RunFailure, match=rf"^1 of \d+ gradients.* first: {name} \(") as failure:
        checked(state)
    assert failure.value.reason == "gradients"


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("factor", [0.0, 1.25])
def test_a_wrong_gradient_of_an_activation_is_found_in_the_layers_before_it(factor: float) -> None:
    state = small(precision="bf16")
    mlp = state.network.get_submodule("blocks.1.mlp")
    forward = mlp.forward
    mlp.forward = lambda x: forward(Scaled.apply(x, factor))  # type: ignore[method-assign]
    with pytest.raises(RunFailure) as failure:
        checked(state)
    named = re.findall(r"([a-z][\w.]+) \(cosine", str(failure.value))
    assert named
    assert all(re.match("patches_in|time|label|blocks.0|blocks.1.(mod|att)", n) for n in named)


def miscompiled(module: nn.Module, **settings: Any) -> None:
    """Stand for a compiler that loses a fifth of a gradient."""
    forward = module.forward
    module.forward = lambda x, *rest: forward(Scaled.apply(x, 0.8), *rest)  # type: ignore[method-assign]


def well_compiled(module: nn.Module, **settings: Any) -> None:
    """Stand for a compiler that changes nothing."""


COMPILED = [*TINY, "train.compile=true", "train.precision=bf16", "log.every=1"]


def attempted(source: Path, *keys: str) -> RunFolder:
    """A run, or one more attempt at it, in this process."""
    run = opened(source, keys)
    number = run.attempts()[-1]
    status = run_attempt(run, pretrain.carry_out, number=number)
    close_attempt(run.attempt(number), status=status)
    return run


def checks(run: RunFolder) -> list[dict[str, Any]]:
    return [record for record in run.records() if record.get("event") == "checked"]


# A run that fails leaves its files open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_miscompiled_run_fails_for_good_and_takes_no_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nn.Module, "compile", miscompiled)
    run = attempted(DIGITS, *COMPILED, "train.steps=2")
    failed = list(run.records())[-1]
    assert (failed["event"], failed["reason"]) == ("failed", "gradients")
    assert re.search(r"patches_in\.weight \(cosine 1, norm x 0\.(79|8)", failed["message"])
    assert not reasons()["gradients"].passes
    assert events(run) == ["started", "failed"]
    assert not any("loss" in record for record in run.records())


def test_a_run_is_checked_before_its_first_step_and_again_only_with_another_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nn.Module, "compile", well_compiled)
    run = attempted(DIGITS, *COMPILED, "train.steps=1")
    (check,) = checks(run)
    assert events(run)[:2] == ["started", "checked"]
    assert check["setting"] == [torch.__version__, "none"]
    assert check["resolved"] == 23
    assert check["error"] < 0.5
    step = next(record for record in run.records() if "loss" in record)
    assert check["check_s"] < step["setup_s"]
    attempted(run.path, "train.steps=2")
    assert len(checks(run)) == 1
    run.metrics_file.write_text(run.metrics_file.read_text().replace(torch.__version__, "2.8.0"))
    attempted(run.path, "train.steps=3")
    assert len(checks(run)) == 2


LONG_LAYOUTS = [
    ["train.compile=true"],
    ["layout.shard=2", "train.compile=true"],
    ["layout.shard=2", "train.compile=true", "train.reduce=bf16"],
    ["layout.tensor=2", "train.compile=true"],
]


@pytest.mark.parametrize(
    "layout",
    [["layout.tensor=2"], *(pytest.param(keys, marks=pytest.mark.long) for keys in LONG_LAYOUTS)],
    ids=str,
)
def test_two_ranks_pass_and_have_the_losses_of_a_run_without_a_check(layout: list[str]) -> None:
    keys = [*TINY, *layout, "train.precision=bf16", "train.steps=4", "log.every=1"]
    checked = trained(keys, ranks=2)
    unchecked = trained([*keys, "train.check_gradients=never"], ranks=2)
    (check,) = checks(checked)
    assert check["error"] < 0.5
    assert not checks(unchecked)
    assert losses(checked) == losses(unchecked)


@pytest.mark.long
@pytest.mark.parametrize("name", ["dit-s2", "imagenet256", "dit-7b"])
def test_the_check_of_a_shipped_dit_takes_less_memory_than_its_steps(name: str) -> None:
    path = Path(f"configs/pretrain/{name}.yaml")
    config = expect(load(path, []), Pretrain, source=path)
    world = config.resources.world
    layout = divide(config, world=world)
    training = pretrain_memory(config, layout)
    eager = {"compile": False, "precision": "fp32", "reduce": "fp32", "ema_decay": None}
    plain = config.model_copy(update={"train": config.train.model_copy(update=eager)})
    eighth = -(-layout.micro_batch // 8)
    sharded = replace(layout, replicate=1, shard=world, tensor=1, micro_batch=eighth)
    pass_through = pretrain_memory(plain, sharded)
    kept = 2 * pass_through.parameters  # two sets of gradients, to compare
    check = pass_through.peak - pass_through.optimizer + kept
    assert training.parameters + training.average + check < training.peak
