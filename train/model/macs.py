"""Multiply-accumulates of a DiT in closed form; imports no torch.

Source: counted layer by layer; the sum gives the "Gflops" column of Peebles & Xie 2023.
"""

from configs.schema import Pretrain


def dit_macs(config: Pretrain) -> dict[str, int]:
    """Forward multiply-accumulates per image, by component."""
    model, data = config.model, config.data
    tokens = (data.size // model.patch) ** 2
    d, depth = model.width, model.depth
    hidden = int(d * model.mlp_ratio)
    patch_values = data.channels * model.patch**2
    return {
        "blocks": depth * tokens * (4 * d * d + 2 * d * hidden),
        "attention": depth * 2 * tokens * tokens * d,
        "adaln": depth * 6 * d * d + 2 * d * d,
        "edges": 2 * tokens * patch_values * d + 256 * d + d * d,
    }


def training_flops(config: Pretrain) -> int:
    """Operations of one training step per image: 6 x MACs (forward 2, backward 4)."""
    return 6 * sum(dit_macs(config).values())
