"""diffusers' `DiTTransformer2DModel` with the signature of our networks."""

from typing import Any

from diffusers import DiTTransformer2DModel
from torch import Tensor, nn

from configs.schema import Pretrain


class DiffusersDiT(nn.Module):
    """Is called like our `DiT`: `network(x, t, label)` with `t` in 0..1."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner: nn.Module = inner
        self.blocks: nn.ModuleList = inner.transformer_blocks

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        """Return the velocity, like `train.model.dit.DiT.forward`."""
        velocity: Tensor = self.inner(x, 1000 * t, label, return_dict=False)[0]
        return velocity


def diffusers_dit(config: Pretrain) -> DiffusersDiT:
    """Return the peer at the size of `config.model`, in training mode without any dropout."""
    model, data = config.model, config.data
    inner: Any = DiTTransformer2DModel(
        num_attention_heads=model.heads,
        attention_head_dim=model.width // model.heads,
        in_channels=data.channels,
        num_layers=model.depth,
        dropout=0.0,
        sample_size=data.size,
        patch_size=model.patch,
        num_embeds_ada_norm=data.classes,
    )
    for block in inner.transformer_blocks:
        block.norm1.emb.class_embedder.dropout_prob = 0.0
    return DiffusersDiT(inner.train())
