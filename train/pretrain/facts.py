"""The sizes and types that the manifest keeps; analysis computes rates and MFU with them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.data.latents.store import read_index
from train.engine.checkpoint_files import SUMS, file_sum
from train.engine.environment import versions
from train.model import flops
from train.model.build import network_macs
from train.model.parallelize import DTYPES, is_sharded


def facts(config: Pretrain, layout: BatchLayout, network: nn.Module) -> dict[str, Any]:
    """Return the facts of an attempt at training `network`."""
    macs, trunk = network_macs(config), config.train.branch_from
    found: dict[str, Any] = {}
    if config.data.source == "latents":
        assert config.data.path is not None
        found["vae_sha256"] = read_index(Path(config.data.path)).vae.sha256
    if config.model.family == "dit":
        found["tokens_per_image"] = flops.tokens(config)
    return found | {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "macs_per_image": macs,
        "training_flops_per_image": flops.training_flops(network_macs(config, training=True)),
        "ranks": layout.world,
        **asdict(layout),
        "branched_from": trunk and {"checkpoint": trunk, "sha256": file_sum(Path(trunk, SUMS))},
        "compile": config.train.compile,
        "dtypes": _dtypes(config, layout),
        "versions": versions(),
    }


def _dtypes(config: Pretrain, layout: BatchLayout) -> dict[str, str]:
    """Return the element types; the layout only decides whether there is a `gather`."""
    gather = str(DTYPES[config.train.precision]).removeprefix("torch.")
    compute = "tfloat32" if config.train.precision == "tf32" else gather
    kept = ("parameters", "gradients", "optimizer", "average")
    reduction = str(DTYPES[config.train.reduce]).removeprefix("torch.")
    types = dict.fromkeys(kept, "float32") | {"compute": compute, "reduction": reduction}
    return types | ({"gather": gather} if is_sharded(layout) else {})
