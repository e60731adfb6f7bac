"""The multiply-accumulates (MACs) of a DiT in closed form, without torch.

Source: counted layer by layer. The sum is the "Gflops" column of Peebles & Xie 2023, table 4.
"""

from configs.schema import Pretrain
from configs.schema.model import Model

TIME_CHANNELS = 256  # sines and cosines of the time embedding


def prefix_tokens(model: Model) -> int:
    """Return the tokens before the patches: an in-context condition, and the registers."""
    return 2 * (model.conditioning == "in_context") + model.registers


def tokens(config: Pretrain) -> int:
    """Return the tokens per image: its patches and those before them."""
    return (config.data.size // config.model.patch) ** 2 + prefix_tokens(config.model)


def mlp_hidden(config: Pretrain) -> int:
    """Return the width of the MLP's hidden layer."""
    return int(config.model.width * config.model.mlp_ratio)


def dit_macs(config: Pretrain) -> dict[str, int]:
    """Return the forward MACs per image, by component.

    `blocks` and `attention` (scores and values) count every token, `adaln` counts once per image,
    and `edges` are the layers before and after the blocks.
    """
    model, data = config.model, config.data
    d, length = model.width, tokens(config)
    patches = (data.size // model.patch) ** 2
    matrices = {"gelu": 2, "swiglu": 3}[model.mlp]
    shared = {"adaln": 2, "adaln_single": 6, "in_context": 0}[model.conditioning] * d * d
    return {
        "blocks": model.depth * length * (4 * d * d + matrices * d * mlp_hidden(config)),
        "attention": model.depth * 2 * length * length * d,
        "adaln": model.depth * _modulation_macs(model) + shared,
        "edges": 2 * patches * data.channels * model.patch**2 * d + TIME_CHANNELS * d + d * d,
    }


def extra_macs(config: Pretrain) -> dict[str, int]:
    """Return the forward MACs per image of training beside the network, by component.

    They are in the predicted time, not in the MFU, which counts the network alone.
    """
    macs, extra = {}, config.objective.extra
    if extra.dispersive:
        # The differences of an image's tokens to those of its group.
        patches = (config.data.size // config.model.patch) ** 2
        macs["dispersive"] = extra.group * patches * config.model.width
    return macs


def _modulation_macs(model: Model) -> int:
    """Return the forward MACs of the modulation in one block."""
    if model.conditioning == "adaln":
        return 6 * model.width**2
    return 7 * model.width * (model.adaln_rank or 0)


def recomputed_macs(config: Pretrain) -> int:
    """Return the forward MACs per image that activation checkpointing computes again."""
    model, checkpointing = config.model, config.activation_checkpointing
    every = 1 if checkpointing.mode == "full" else checkpointing.every
    if checkpointing.mode == "none" or every is None:
        return 0  # selective with every: null keeps the result of every matrix product
    macs = dit_macs(config)
    in_blocks = macs["blocks"] + macs["attention"] + model.depth * _modulation_macs(model)
    return in_blocks // model.depth * (model.depth // every)


def muon_matrices(config: Pretrain) -> list[tuple[int, int]]:
    """Return the shapes of the matrices that Muon moves, over all blocks; none without Muon."""
    d, hidden = config.model.width, mlp_hidden(config)
    mlp = [(hidden, d)] * {"gelu": 2, "swiglu": 3}[config.model.mlp]
    return ([(d, d)] * 4 + mlp) * config.model.depth * (config.optimizer.kind == "muon")


def newton_schulz_flops(config: Pretrain) -> int:
    """Return the FLOPs per step of Muon's five iterations over all matrices, on all ranks together.

    An iteration of an m x n matrix, m <= n, has products of m n m, m m m and m m n.
    """
    sizes = [(min(shape), max(shape)) for shape in muon_matrices(config)]
    return sum(5 * 2 * (2 * m * m * n + m**3) for m, n in sizes)


def training_flops(macs: dict[str, int]) -> int:
    """Return the FLOPs of training on one image: 6 x MACs (forward 2, backward 4)."""
    return 6 * sum(macs.values())
