"""The sizes of a transformer, and the FLOPs of training, without torch."""

from configs.schema import Pretrain

TIME_CHANNELS = 256  # sines and cosines of the time embedding


def tokens(config: Pretrain) -> int:
    """Return the tokens per image: its patches and the registers."""
    return patches(config) + config.model.registers


def mlp_hidden(config: Pretrain) -> int:
    """Return the width of the MLP's hidden layer."""
    return int(config.model.width * config.model.mlp_ratio)


def patches(config: Pretrain) -> int:
    """Return the patches per image."""
    return (config.data.size // config.model.patch) ** 2


def training_flops(macs: dict[str, int]) -> int:
    """Return the FLOPs of training on one image: 6 x MACs (forward 2, backward 4)."""
    return 6 * sum(macs.values())
