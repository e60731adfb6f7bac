"""The closed forms of the forecast agree with torch, and its estimates with the closed forms."""

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
from tests.train.model.test_dit import FLAVOURS, RECIPES, SIZES
from train.forecast.activations import block_kept, compiled_kept, edges_kept
from train.forecast.dry_run import dry_run
from train.forecast.estimate import capacity_bytes, forecast, largest_micro_batch
from train.forecast.memory import GIB, block_count, dit_memory, dit_parameters, edge_count, overhead
from train.forecast.query import ForecastQuery
from train.model.build import build_network
from train.model.parallelize import DTYPES

VARIANTS = [
    {"mlp": mlp, "conditioning": conditioning, "positions": positions, "qk_norm": qk_norm}
    for mlp, conditioning, positions, qk_norm in itertools.product(
        ("gelu", "swiglu"), ("adaln", "in_context"), ("rope", "sincos"), (True, False)
    )
] + RECIPES
SMALL = {"width": 64, "depth": 2, "heads": 2, "patch": 2}


def config_of(model: dict[str, Any] | None = None, **groups: dict[str, Any]) -> Pretrain:
    data = {"source": "dummy", "size": 32, "channels": 4, "classes": 1000}
    train = {"compile": False} | groups.pop("train", {})
    tree = {"model": SMALL | (model or {}), "data": data, "train": train, **groups}
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
def test_parameters_equal_those_of_the_network(model: dict[str, Any]) -> None:
    config = config_of(model)
    with torch.device("meta"):
        network = build_network(config)
    assert dit_parameters(config) == sum(p.numel() for p in network.parameters())


class Saved:
    """Counts the bytes of distinct storages that autograd saves in the `with`, except `known`."""

    def __init__(self, known: list[Tensor]) -> None:
        self._known = {tensor.untyped_storage()._cdata for tensor in known}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self._add, lambda tensor: tensor)

    def _add(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self._storages[storage._cdata] = storage
        return tensor

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for storage in self._storages.values())


def gpu_attention(config: Pretrain) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the kernel of a GPU; on a CPU torch would materialize the scores."""
    dtype, aten = DTYPES[config.train.precision], torch.ops.aten

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (each.to(dtype) for each in (q, k, v))
        if dtype is torch.float32:
            return aten._scaled_dot_product_efficient_attention(q, k, v, None, True)[0]
        return aten._scaled_dot_product_flash_attention(q, k, v)[0]

    return attend


def saved_on_a_gpu(config: Pretrain, *, images: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes that the forward pass saves on fake CUDA tensors, with casts of weights."""
    monkeypatch.setattr("train.model.attention.attend", gpu_attention(config))
    device, data = torch.device("cuda", 0), config.data
    lower = config.train.precision == "bf16"
    with FakeTensorMode(allow_non_fake_inputs=True):
        with device:
            network = build_network(config)
        saved = Saved([*network.parameters(), *network.buffers()])
        x = torch.randn(images, data.channels, data.size, data.size, device=device)
        t, label = torch.rand(images, device=device), torch.zeros(images, device=device).long()
        # `torch.autocast` disables itself without a GPU.
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


@pytest.mark.parametrize("precision", ["bf16", "fp32", "tf32"])
@pytest.mark.parametrize("model", VARIANTS, ids=lambda model: "-".join(map(str, model.values())))
def test_activations_equal_what_autograd_saves_on_a_gpu(
    model: dict[str, Any], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, images = config_of(model, train={"precision": precision}), 3
    block, depth = block_kept(config), config.model.depth
    closed_form = depth * (block.image * images + block.once) + edges_kept(config).image * images
    closed_form -= 2 * 4 * images * config.data.channels * config.data.size**2  # image and noise
    if precision == "bf16":
        closed_form += 2 * (depth * block_count(config).cast + edge_count(config).cast)
    saved = saved_on_a_gpu(config, images=images, monkeypatch=monkeypatch)
    assert closed_form == pytest.approx(saved, rel=0.002)


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
    "FSDP2, not resharded": (
        4, {"train": {"global_batch": 8}, "layout": {"shard": 4, "reshard": False}}
    ),
    "FSDP2, reduced in bf16": (
        4, {"train": {"global_batch": 8, "reduce": "bf16"}, "layout": {"shard": 4}}
    ),
    "FSDP2, accumulation, reduced in bf16": (
        4,
        {"train": {"global_batch": 8, "micro_batch": 1, "reduce": "bf16"}, "layout": {"shard": 4}},
    ),
    "HSDP": (4, {"train": {"global_batch": 64}, "layout": {"shard": 2}}),
    "TP": (2, {"layout": {"tensor": 2}}),
    "Muon": (1, {"optimizer": {"kind": "muon"}}),
    "Muon, FSDP2": (4, {"optimizer": {"kind": "muon"}, "layout": {"shard": 4}}),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_closed_form_agrees_with_a_dry_run_storage_by_storage(name: str) -> None:
    world, groups = LAYOUTS[name]
    config = config_of(WIDE, **({"train": {"global_batch": 16}} | groups))
    layout = divide(config, world=world)
    closed_form, run = dit_memory(config, layout), dry_run(config, layout)
    assert closed_form.parameters == pytest.approx(run.parameters, rel=0.01)
    assert closed_form.optimizer == pytest.approx(run.optimizer, rel=0.01)
    assert closed_form.average == pytest.approx(run.average, rel=0.01)
    assert closed_form.peak == pytest.approx(run.peak, rel=0.04)


@pytest.mark.long
def test_a_dry_run_of_7b_takes_half_a_minute() -> None:
    width, depth, heads, _ = FLAVOURS["7B"]
    model = {"width": width, "depth": depth, "heads": heads}
    config = config_of(model, layout={"shard": 64}, train={"global_batch": 256})
    layout = divide(config, world=64)
    assert dit_memory(config, layout).peak == pytest.approx(dry_run(config, layout).peak, rel=0.05)


def query_of(config: Pretrain, *gpus: str, ranks: int = 1) -> ForecastQuery:
    known = {name: named_gpu(name)[1] for name in gpus}
    return ForecastQuery(source="test", config=config, gpus=known, nodes=1, gpus_per_node=ranks)


def test_the_largest_micro_batch_fits_and_one_more_does_not() -> None:
    config = config_of(SIZES["XL"])
    query, gpu = query_of(config, "a40"), named_gpu("a40")[1]
    largest = largest_micro_batch(query, gpu)
    layout = divide(config, world=1)
    at_largest, beyond = (
        dit_memory(config, dataclasses.replace(layout, micro_batch=size)).total
        for size in (largest, largest + 1)
    )
    assert at_largest <= capacity_bytes(gpu) < beyond


def test_an_auto_micro_batch_is_the_largest_divisor_that_fits() -> None:
    config = config_of(SIZES["XL"], train={"micro_batch": "auto"})
    estimate = forecast(query_of(config, "a40")).gpus["a40"]
    assert estimate.fits
    assert 256 % estimate.micro_batch == 0
    # 64 would accumulate, and its gradients would take the memory of an image.
    assert estimate.micro_batch <= estimate.max_micro_batch < 2.1 * estimate.micro_batch
    larger = config_of(SIZES["XL"], train={"micro_batch": 2 * estimate.micro_batch})
    too_large = forecast(query_of(larger, "a40")).gpus["a40"]
    assert not too_large.fits
    assert too_large.fix == f"train.micro_batch={estimate.micro_batch}"


def test_7b_under_ddp_does_not_fit_80_gb_and_the_fix_makes_it_fit() -> None:
    width, depth, heads, _ = FLAVOURS["7B"]
    model = {"width": width, "depth": depth, "heads": heads}
    estimate = forecast(query_of(config_of(model), "a100-80gb-sxm", ranks=16)).gpus["a100-80gb-sxm"]
    assert not estimate.fits
    assert estimate.max_micro_batch == 0
    assert estimate.images_per_s is None
    assert estimate.reason
    assert "132 GiB on every rank" in estimate.reason
    assert estimate.fix == "train.micro_batch=1 layout.shard=16"
    fixed = config_of(model, train={"micro_batch": 1}, layout={"shard": 16})
    assert forecast(query_of(fixed, "h100-sxm", ranks=16)).gpus["h100-sxm"].fits


def test_a_better_gpu_is_faster_and_recomputation_slower() -> None:
    config = config_of(SIZES["B"], train={"global_batch": 64})
    recomputed = config_of(
        SIZES["B"], train={"global_batch": 64}, activation_checkpointing={"mode": "full"}
    )
    rates = [forecast(query_of(config, name)).gpus[name].images_per_s for name in ("a40", "h200")]
    slow = forecast(query_of(recomputed, "a40")).gpus["a40"].images_per_s
    assert slow
    assert rates[0]
    assert rates[1]
    assert slow < rates[0] < rates[1]


def test_the_rate_of_a_block_follows_its_counted_traffic() -> None:
    # 0.7 TFLOP per image and 28 blocks of 550 or 168 bytes per token and channel, worked by hand.
    rates = []
    for compiled in (False, True):
        train = {"global_batch": 256, "micro_batch": 64, "compile": compiled}
        estimate = forecast(query_of(config_of(SIZES["XL"], train=train), "h100-sxm"))
        rates.append(estimate.gpus["h100-sxm"].images_per_s)
    assert rates == pytest.approx([350, 565], rel=0.03)


def test_each_dimension_of_the_mesh_with_several_ranks_takes_a_communicator() -> None:
    groups = {1: {}, 4: {"layout": {"shard": 2}}, 8: {"layout": {"shard": 2, "tensor": 2}}}
    alone, two, three = (
        overhead(divide(config_of(**group), world=world), peak=0) for world, group in groups.items()
    )
    assert two - alone == pytest.approx(0.6 * GIB)
    assert three - alone == pytest.approx(0.9 * GIB)


def test_a_family_means_its_largest_gpu_and_an_unknown_gpu_is_refused_with_all_names() -> None:
    assert named_gpu("a100")[0] == "a100-80gb-sxm"
    assert named_gpu("a40")[0] == "a40"
    with pytest.raises(ConfigError) as refused:
        named_gpu("a4")
    assert all(name in str(refused.value) for name in gpu_names())


def test_measuring_single_microbatches_takes_one_more_set_of_gradients() -> None:
    model = {"width": 1024, "depth": 4, "heads": 16}
    train = {"global_batch": 4, "micro_batch": 2, "precision": "fp32"}
    plain, measured = (
        dit_memory(config, divide(config, world=1))
        for config in (config_of(model, train=train, gns={"enabled": on}) for on in (False, True))
    )
    # The peak grows by less: activations are freed by the time that the gradients are complete.
    assert 0.4 * plain.gradients < measured.peak - plain.peak <= plain.gradients
