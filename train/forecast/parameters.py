"""How many parameters a DiT has, and how many of them a rank holds; imports no torch.

Source: counted layer by layer in `train/model`; tests hold the sums to the network's own.
"""

from dataclasses import dataclass

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.model.flops import TIME_CHANNELS, mlp_hidden


@dataclass(frozen=True, kw_only=True)
class Count:
    """Parameters of a part of a network.

    Of `cast` autocast makes copies in the type that is computed in, for the backward pass too.
    """

    all: int
    cast: int

    def __add__(self, other: "Count") -> "Count":
        return Count(all=self.all + other.all, cast=self.cast + other.cast)

    def times(self, number: int) -> "Count":
        """So many of them."""
        return Count(all=self.all * number, cast=self.cast * number)


def block_count(config: Pretrain, *, tensor: int = 1) -> Count:
    """The parameters of one block on one of the `tensor` ranks that split it."""
    model, hidden = config.model, mlp_hidden(config)
    d, head_dim, gates = model.width, model.width // model.heads, model.mlp == "swiglu"
    split = [(d, 3 * d)] + [(d, hidden)] * (1 + gates)
    if model.conditioning == "adaln":
        split.append((d, 6 * d))
    # Split by rows, bias and all; the other two by columns, their biases whole.
    rows = sum((inner + 1) * outer for inner, outer in split) // tensor
    columns = (d * d + hidden * d) // tensor
    norms = 2 * head_dim * model.qk_norm + 4 * d * (model.conditioning == "in_context")
    cast = sum(inner * outer for inner, outer in split) // tensor + columns
    return Count(all=rows + columns + 2 * d + norms, cast=cast)


def edge_count(config: Pretrain) -> Count:
    """The parameters before and after the blocks, which no tensor rank splits."""
    model, data = config.model, config.data
    d, pixels = model.width, data.channels * model.patch**2
    first, later, norm_out = [(pixels, d), (TIME_CHANNELS, d)], [(d, d), (d, pixels)], 2 * d
    if model.conditioning == "adaln":
        later.append((d, 2 * d))
        norm_out = 0
    labels = (data.classes + 1) * d
    # The first layers' copies are dropped: nothing before them has a gradient.
    return Count(
        all=sum((inner + 1) * outer for inner, outer in first + later) + labels + norm_out,
        cast=sum(inner * outer for inner, outer in later),
    )


def dit_parameters(config: Pretrain) -> int:
    """All parameters of the network."""
    return (block_count(config).times(config.model.depth) + edge_count(config)).all


def held_parameters(config: Pretrain, layout: BatchLayout) -> float:
    """Parameters that one rank keeps: its part of every block and edge (mean over the ranks)."""
    blocks = block_count(config, tensor=layout.tensor).times(config.model.depth)
    return (blocks + edge_count(config)).all / layout.shard
