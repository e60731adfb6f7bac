"""The number of parameters of a DiT and of one rank's part of it, without torch.

Source: the layers of `train/model`, counted one by one. Tests compare the sums with the network.
"""

from dataclasses import dataclass

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from configs.schema.model import Model
from train.model.flops import TIME_CHANNELS, mlp_hidden


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """The parameters of a part of a network; autocast copies `cast` of them to lower precision."""

    all: int
    cast: int


def block_count(config: Pretrain, *, tensor: int = 1) -> ParameterCount:
    """Return the parameters of one block on one of the `tensor` ranks that split it."""
    model, hidden = config.model, mlp_hidden(config)
    d, head_dim, gates = model.width, model.width // model.heads, model.mlp == "swiglu"
    split = [(d, 3 * d)] + [(d, hidden)] * (1 + gates)
    if model.conditioning == "adaln":
        split.append((d, 6 * d))
    # `split` layers are split by rows, with their biases; the other two by columns, with whole
    # biases on every rank.
    rows = sum((inner + 1) * outer for inner, outer in split) // tensor
    columns = (d * d + hidden * d) // tensor
    norms = 2 * head_dim * model.qk_norm + 2 * _norm(model)
    low_rank = 7 * d * (model.adaln_rank or 0)
    table = 6 * d * (model.conditioning == "adaln_single")
    cast = sum(inner * outer for inner, outer in split) // tensor + columns + low_rank
    return ParameterCount(all=rows + columns + 2 * d + norms + low_rank + table, cast=cast)


def _norm(model: Model) -> int:
    """Return the parameters of a norm of tokens: those of an adaLN block have none."""
    affine = {"layer": 2, "rms": 1}[model.norm] * model.width
    return affine if model.conditioning == "in_context" else 0


def edge_count(config: Pretrain) -> ParameterCount:
    """Return the parameters before and after the blocks, which every tensor rank holds whole."""
    model, data = config.model, config.data
    d, pixels = model.width, data.channels * model.patch**2
    first, later = [(pixels, d), (TIME_CHANNELS, d)], [(d, d), (d, pixels)]
    table = 2 * d * (model.conditioning == "adaln_single")
    if model.conditioning != "in_context":
        later.append((d, (2 if model.conditioning == "adaln" else 6) * d))
    if model.routing.kind == "sprint":
        later.append((2 * d, d))
    vectors = (data.classes + 1 + model.registers) * d + _norm(model) + table
    # Autocast's copies of the first layers are freed: nothing before them needs a gradient.
    return ParameterCount(
        all=sum((inner + 1) * outer for inner, outer in first + later) + vectors,
        cast=sum(inner * outer for inner, outer in later),
    )


def dit_parameters(config: Pretrain) -> int:
    """Return the number of parameters of the network."""
    return config.model.depth * block_count(config).all + edge_count(config).all


def held_parameters(config: Pretrain, layout: BatchLayout) -> float:
    """Return the parameters that one rank holds, as the mean over the ranks."""
    blocks = config.model.depth * block_count(config, tensor=layout.tensor).all
    return (blocks + edge_count(config).all) / layout.shard
