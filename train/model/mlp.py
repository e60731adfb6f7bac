"""The feed-forward half of a block."""

import torch.nn.functional as F
from torch import Tensor, nn

from train.model.linear import Linear


class GeluMLP(nn.Module):
    """Two linear layers around a tanh GELU."""

    def __init__(self, *, width: int, hidden: int) -> None:
        super().__init__()
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `[..., d]`."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class SwiGLU(nn.Module):
    """Three linear layers: one gates another through a SiLU (Shazeer 2020)."""

    def __init__(self, *, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = Linear(width, hidden)
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """`x` `[..., d]`."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


MLPS: dict[str, type[GeluMLP] | type[SwiGLU]] = {"gelu": GeluMLP, "swiglu": SwiGLU}
