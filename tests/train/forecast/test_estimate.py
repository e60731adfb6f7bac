"""The closed forms of the forecast agree with what torch counts, and its verdicts with them."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.gpus import gpu_names, named_gpu
from configs.load import resolve
from configs.schema import Pretrain
from tests.train.model.test_dit import FLAVOURS, SIZES
from train.forecast.activations import block_kept, compiled_kept, edges_kept
from train.forecast.dry_run import count_memory
from train.forecast.estimate import capacity, forecast, largest_micro_batch
from train.forecast.memory import dit_memory
from train.forecast.parameters import block_count, dit_parameters, edge_count
from train.forecast.query import ForecastQuery
from train.model.build import build_network
from train.model.parallelize import DTYPES

VARIANTS = [
    {"mlp": mlp, "conditioning": conditioning, "positions": positions, "qk_norm": qk_norm}
    for mlp, conditioning, positions, qk_norm in itertools.product(
        ("gelu", "swiglu"), ("adaln", "in_context"), ("rope", "sincos"), (True, False)
    )
]
SMALL = {"width": 64, "depth": 2, "heads": 2, "patch": 2}


def config_of(model: dict[str, Any] | None = None, **groups: dict[str, Any]) -> Pretrain:
    data = {"source": "dummy", "size": 32, "channels": 4, "classes": 1000}
    tree = {"model": SMALL | (model or {}), "data": data, **groups}
    config = resolve(tree, source="test")
    assert isinstance(config, Pretrain)
    return config


@pytest.mark.parametrize(
    "model",
    [
        *VARIANTS,
        *({"patch": patch, **size} for size in SIZES.values() for patch in (2, 8)),
        *(
            dict(zip(("width", "depth", "heads"), sizes, strict=False))
            for sizes in FLAVOURS.values()
        ),
        {"mlp_ratio": 8 / 3, "mlp": "swiglu"},
    ],
    ids=str,
)
def test_parameters_are_those_of_the_network(model: dict[str, Any]) -> None:
    config = config_of(model)
    with torch.device("meta"):
        network = build_network(config)
    assert dit_parameters(config) == sum(p.numel() for p in network.parameters())


class Saved:
    """Bytes of the distinct storages that autograd saves inside the `with`, but for `known`."""

    def __init__(self, known: list[Tensor]) -> None:
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._see, lambda tensor: tensor)

    def _see(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self._storages[storage._cdata] = storage
        return tensor

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for storage in self._storages.values())


def gpu_attention(config: Pretrain) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The kernel that a GPU takes; without one torch would choose the table of scores."""
    dtype, aten = DTYPES[config.train.precision], torch.ops.aten

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (each.to(dtype) for each in (q, k, v))
        if dtype is torch.float32:
            return aten._scaled_dot_product_efficient_attention(q, k, v, None, True)[0]
        return aten._scaled_dot_product_flash_attention(q, k, v)[0]

    return attend


def saved_on_a_gpu(config: Pretrain, *, images: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that the forward pass saves on CUDA tensors without data, weights' copies included."""
    monkeypatch.setattr("train.model.attention.attend", gpu_attention(config))
    device, data = torch.device("cuda", 0), config.data
    lower = config.train.precision != "fp32"
    with FakeTensorMode(allow_non_fake_inputs=True):
        with device:
            network = build_network(config)
        saved = Saved([*network.parameters(), *network.buffers()])
        x = torch.randn(images, data.channels, data.size, data.size, device=device)
        t, label = torch.rand(images, device=device), torch.zeros(images, device=device).long()
        # `torch.autocast` turns itself off where there is no GPU.
        torch.set_autocast_enabled("cuda", lower)
        torch.set_autocast_dtype("cuda", DTYPES[config.train.precision] if lower else torch.half)
        torch.autocast_increment_nesting()
        try:
            with saved.hooks:
                error = (network(x, t, label).float() - x).square().flatten(1).mean(dim=1)
        finally:
            torch.autocast_decrement_nesting()
            torch.clear_autocast_cache()
            torch.set_autocast_enabled("cuda", False)
        assert len(error) == images
        return saved.bytes


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("model", VARIANTS, ids=lambda model: "-".join(map(str, model.values())))
def test_activations_are_what_autograd_saves_on_a_gpu(
    model: dict[str, Any], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, images = config_of(model, train={"precision": precision}), 3
    block, depth = block_kept(config), config.model.depth
    mine = depth * (block.image * images + block.once) + edges_kept(config).image * images
    mine -= 2 * 4 * images * config.data.channels * config.data.size**2  # image and noise
    if precision != "fp32":
        mine += 2 * (block_count(config).times(depth) + edge_count(config)).cast
    counted = saved_on_a_gpu(config, images=images, monkeypatch=monkeypatch)
    assert mine == pytest.approx(counted, rel=0.002)


@pytest.mark.parametrize("mlp", ["gelu", "swiglu"])
def test_a_compiled_block_keeps_what_the_partitioner_keeps(mlp: str) -> None:
    config = config_of({"mlp": mlp, "qk_norm": False}, train={"precision": "fp32"})
    network, images = build_network(config), 4
    block, tokens = network.blocks[0], 256
    x = torch.randn(images, tokens, 64, requires_grad=True)
    condition = torch.randn(images, 64, requires_grad=True)
    saved = Saved([*network.parameters(), *network.buffers(), condition])
    block.compile(backend="aot_eager_decomp_partition")
    with saved.hooks:
        block(x, condition, network.rope)
    kept = compiled_kept(config)
    assert kept.image * images == pytest.approx(saved.bytes, rel=0.02)
    assert kept.image < 0.9 * block_kept(config).image


WIDE = {"width": 512, "depth": 4, "heads": 8}
LAYOUTS = {
    "one rank": (1, {}),
    "float32": (1, {"train": {"global_batch": 16, "precision": "fp32"}}),
    "no average": (1, {"train": {"global_batch": 16, "ema_decay": None}}),
    "accumulation": (1, {"train": {"global_batch": 32, "micro_batch": 16}}),
    "full": (1, {"activation_checkpointing": {"mode": "full"}}),
    "every second": (1, {"activation_checkpointing": {"mode": "selective", "every": 2}}),
    "by operation": (1, {"activation_checkpointing": {"mode": "selective", "every": None}}),
    "DDP": (4, {"train": {"global_batch": 64}}),
    "FSDP2": (4, {"train": {"global_batch": 64}, "layout": {"shard": 4}}),
    "FSDP2, accumulation": (
        4, {"train": {"global_batch": 128, "micro_batch": 16}, "layout": {"shard": 4}}
    ),
    "HSDP": (4, {"train": {"global_batch": 64}, "layout": {"shard": 2}}),
    "TP": (2, {"layout": {"tensor": 2}}),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_closed_form_is_what_is_counted_storage_by_storage(name: str) -> None:
    world, groups = LAYOUTS[name]
    config = config_of(WIDE, **({"train": {"global_batch": 16}} | groups))
    layout = divide(config, world=world)
    mine, counted = dit_memory(config, layout), count_memory(config, layout)
    assert mine.parameters == pytest.approx(counted.parameters, rel=0.01)
    assert mine.optimizer == pytest.approx(counted.optimizer, rel=0.01)
    assert mine.average == pytest.approx(counted.average, rel=0.01)
    assert mine.peak == pytest.approx(counted.peak, rel=0.04)


@pytest.mark.long
def test_7b_is_counted_in_half_a_minute() -> None:
    width, depth, heads, _ = FLAVOURS["7B"]
    model = {"width": width, "depth": depth, "heads": heads}
    config = config_of(model, layout={"shard": 64}, train={"global_batch": 256})
    layout = divide(config, world=64)
    assert dit_memory(config, layout).peak == pytest.approx(
        count_memory(config, layout).peak, rel=0.05
    )


def cell_of(config: Pretrain, *gpus: str, ranks: int = 1) -> ForecastQuery:
    known = {name: named_gpu(name)[1] for name in gpus}
    return ForecastQuery(source="test", config=config, gpus=known, nodes=1, gpus_per_node=ranks)


def test_the_largest_micro_batch_fits_and_one_more_does_not() -> None:
    config = config_of(SIZES["XL"])
    cell, gpu = cell_of(config, "a40"), named_gpu("a40")[1]
    largest = largest_micro_batch(cell, gpu)
    layout = divide(config, world=1)
    at, beyond = (
        dit_memory(config, dataclasses.replace(layout, micro_batch=size)).total
        for size in (largest, largest + 1)
    )
    assert at <= capacity(gpu) < beyond


def test_a_micro_batch_left_to_tuning_is_the_largest_divisor_that_fits() -> None:
    config = config_of(SIZES["XL"], train={"micro_batch": "auto"})
    outlook = forecast(cell_of(config, "a40")).gpus["a40"]
    assert outlook.fits
    assert 256 % outlook.micro_batch == 0
    assert outlook.micro_batch <= outlook.max_micro_batch < 2 * outlook.micro_batch + 1
    asked = config_of(SIZES["XL"], train={"micro_batch": 2 * outlook.micro_batch})
    refused = forecast(cell_of(asked, "a40")).gpus["a40"]
    assert not refused.fits
    assert refused.fix == f"train.micro_batch={outlook.micro_batch}"


def test_7b_under_ddp_is_hopeless_on_80_gb_and_fits_as_is_said() -> None:
    width, depth, heads, _ = FLAVOURS["7B"]
    model = {"width": width, "depth": depth, "heads": heads}
    outlook = forecast(cell_of(config_of(model), "a100-80gb-sxm", ranks=16)).gpus["a100-80gb-sxm"]
    assert not outlook.fits
    assert outlook.max_micro_batch == 0
    assert outlook.images_per_s is None
    assert outlook.reason
    assert "132 GiB on every rank" in outlook.reason
    assert outlook.fix == "train.micro_batch=1 layout.shard=16"
    fixed = config_of(model, train={"micro_batch": 1}, layout={"shard": 16})
    assert forecast(cell_of(fixed, "h100-sxm", ranks=16)).gpus["h100-sxm"].fits


def test_a_better_gpu_is_faster_and_recomputation_slower() -> None:
    config = config_of(SIZES["B"], train={"global_batch": 64})
    again = config_of(
        SIZES["B"], train={"global_batch": 64}, activation_checkpointing={"mode": "full"}
    )
    rates = [forecast(cell_of(config, name)).gpus[name].images_per_s for name in ("a40", "h200")]
    slow = forecast(cell_of(again, "a40")).gpus["a40"].images_per_s
    assert slow
    assert rates[0]
    assert rates[1]
    assert slow < rates[0] < rates[1]


def test_a_family_stands_for_its_largest_and_an_unknown_gpu_is_refused_with_those_known() -> None:
    assert named_gpu("a100")[0] == "a100-80gb-sxm"
    assert named_gpu("a40")[0] == "a40"
    with pytest.raises(ConfigError) as refused:
        named_gpu("a4")
    assert all(name in str(refused.value) for name in gpu_names())


def test_to_see_microbatches_apart_takes_one_more_set_of_gradients() -> None:
    model = {"width": 1024, "depth": 4, "heads": 16}
    train = {"global_batch": 4, "micro_batch": 2, "precision": "fp32"}
    plain, seen = (
        dit_memory(config, divide(config, world=1))
        for config in (config_of(model, train=train, gns={"enabled": on}) for on in (False, True))
    )
    # Not all of it comes on top: the activations are gone by the time that gradients are whole.
    assert 0.4 * plain.gradients < seen.peak - plain.peak <= plain.gradients
