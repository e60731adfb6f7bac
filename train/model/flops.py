"""Multiply-accumulates of a DiT in closed form; imports no torch.

Source: counted layer by layer; the sum gives the "Gflops" column of Peebles & Xie 2023.
"""

from configs.schema import Pretrain


def tokens(config: Pretrain) -> int:
    """Tokens per image that the blocks see: its patches, and an in-context condition's two."""
    model = config.model
    return (config.data.size // model.patch) ** 2 + 2 * (model.conditioning == "in_context")


def mlp_hidden(config: Pretrain) -> int:
    """Width of the MLP's hidden layer."""
    return int(config.model.width * config.model.mlp_ratio)


def dit_macs(config: Pretrain) -> dict[str, int]:
    """Forward multiply-accumulates per image, by component.

    `blocks` and `attention` (scores and values) go with the tokens, `adaln` is once per image,
    `edges` is what stands before and after the blocks.
    """
    model, data = config.model, config.data
    d, depth, adaln = model.width, model.depth, model.conditioning == "adaln"
    length = tokens(config)
    patches = (data.size // model.patch) ** 2
    matrices = {"gelu": 2, "swiglu": 3}[model.mlp]
    return {
        "blocks": depth * length * (4 * d * d + matrices * d * mlp_hidden(config)),
        "attention": depth * 2 * length * length * d,
        "adaln": (depth * 6 * d * d + 2 * d * d) * adaln,
        "edges": 2 * patches * data.channels * model.patch**2 * d + 256 * d + d * d,
    }


def recomputed_macs(config: Pretrain) -> int:
    """Forward multiply-accumulates per image that activation checkpointing does twice."""
    model, again = config.model, config.activation_checkpointing
    depth = {"none": 0, "full": model.depth, "selective": model.depth // (again.every or 1)}
    if again.mode == "none" or (again.mode == "selective" and again.every is None):
        return 0
    macs = dit_macs(config)
    in_blocks = macs["blocks"] + macs["attention"]
    if model.conditioning == "adaln":
        in_blocks += model.depth * 6 * model.width**2
    return in_blocks // model.depth * depth[again.mode]


def training_flops(macs: dict[str, int]) -> int:
    """Operations of one training step per image: 6 x MACs (forward 2, backward 4)."""
    return 6 * sum(macs.values())
