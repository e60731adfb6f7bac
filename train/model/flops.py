"""The multiply-accumulates (MACs) of a DiT in closed form, without torch.

Source: counted layer by layer. The sum is the "Gflops" column of Peebles & Xie 2023, table 4.
"""

from configs.schema import Pretrain
from configs.schema.model import Model

TIME_CHANNELS = 256  # sines and cosines of the time embedding


def tokens(config: Pretrain) -> int:
    """Return the tokens per image: its patches and the registers."""
    return patches(config) + config.model.registers


def mlp_hidden(config: Pretrain) -> int:
    """Return the width of the MLP's hidden layer."""
    return int(config.model.width * config.model.mlp_ratio)


def block_tokens(config: Pretrain) -> list[int]:
    """Return the tokens per image in each block of a training step with token routing."""
    model, whole = config.model, tokens(config)
    kept = model.registers + model.routing.kept(patches(config))
    routed = model.routed_blocks()
    return [kept if number in routed else whole for number in range(model.depth)]


def dit_macs(config: Pretrain, lengths: list[int] | None = None) -> dict[str, int]:
    """Return the forward MACs per image, by component; `lengths` are the tokens in each block.

    `blocks` and `attention` (scores and values) count every token, `adaln` counts once per image,
    and `edges` are the layers before and after the blocks.
    """
    model, data = config.model, config.data
    d, lengths = model.width, lengths or [tokens(config)] * model.depth
    matrices = {"gelu": 2, "swiglu": 3}[model.mlp]
    shared = {"adaln": 2, "adaln_single": 6}[model.conditioning] * d * d
    return {
        "blocks": sum(lengths) * (4 * d * d + matrices * d * mlp_hidden(config)),
        "attention": sum(2 * length * length * d for length in lengths),
        "adaln": model.depth * _modulation_macs(model) + shared,
        "edges": (2 * patches(config) * data.channels * model.patch**2 + TIME_CHANNELS + d) * d,
    }


def patches(config: Pretrain) -> int:
    """Return the patches per image."""
    return (config.data.size // config.model.patch) ** 2


def training_macs(config: Pretrain) -> dict[str, int]:
    """Return the forward MACs per image of training, in which patches skip blocks."""
    return dit_macs(config, block_tokens(config))


def _modulation_macs(model: Model) -> int:
    """Return the forward MACs of the modulation in one block."""
    return 6 * model.width**2 if model.conditioning == "adaln" else 0


def recomputed_macs(config: Pretrain) -> int:
    """Return the forward MACs per image that checkpointing computes again, of average blocks."""
    model, checkpointing = config.model, config.activation_checkpointing
    every = 1 if checkpointing.mode == "full" else checkpointing.every
    if checkpointing.mode == "none":
        return 0
    macs = training_macs(config)
    in_blocks = macs["blocks"] + macs["attention"] + model.depth * _modulation_macs(model)
    return in_blocks // model.depth * (model.depth // every)


def training_flops(macs: dict[str, int]) -> int:
    """Return the FLOPs of training on one image: 6 x MACs (forward 2, backward 4)."""
    return 6 * sum(macs.values())
