"""The block of a DiT: attention and MLP, with the condition in the norms."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from configs.schema import Pretrain
from configs.schema.model import Model
from train.model.attention import Attention
from train.model.flops import mlp_hidden
from train.model.roles import hidden, modulation


class AdaLNBlock(nn.Module):
    """Attention and MLP, each with shift, scale and gate from the condition (adaLN-zero)."""

    def __init__(self, config: Pretrain) -> None:
        super().__init__()
        model = config.model
        if model.conditioning == "adaln":
            linear = modulation(nn.Linear(model.width, 6 * model.width))
            self.modulation: nn.Linear | TableModulation = linear
        else:
            self.modulation = TableModulation(model)
        self.attention = Attention(model)
        self.mlp = MLPS[model.mlp](model.width, mlp_hidden(config))

    def forward(self, x: Tensor, condition: Tensor, rope: Tensor | None) -> Tensor:
        """Return `[B, T, d]` for `x` `[B, T, d]` and `condition` `[B, d]` after its SiLU.

        For `adaln_single`, `condition` is described at `TableModulation`.
        """
        chunks = self.modulation(condition).unsqueeze(1).chunk(6, dim=-1)
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = chunks
        x = torch.addcmul(x, gate_a, self.attention(modulate(x, shift_a, scale_a), rope))
        return torch.addcmul(x, gate_m, self.mlp(modulate(x, shift_m, scale_m)))


class TableModulation(nn.Module):
    """adaLN-single: the modulation of all blocks plus a table of this block (Chen et al. 2023)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(6 * model.width))
        nn.init.zeros_(self.table)

    def forward(self, shared: Tensor) -> Tensor:
        """Return `[B, 6 d]` for the modulation of all blocks `[B, 6 d]`."""
        return shared + self.table.to(shared.dtype)


class GeluMLP(nn.Module):
    """Two linear layers with a tanh GELU between them."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.up = hidden(nn.Linear(width, size), "outputs")
        self.down = hidden(nn.Linear(size, width), "inputs")

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., d]` for `x` `[..., d]`."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class SwiGLU(nn.Module):
    """Three linear layers, one of which gates another through a SiLU (Shazeer 2020)."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.gate = hidden(nn.Linear(width, size), "outputs")
        self.up = hidden(nn.Linear(width, size), "outputs")
        self.down = hidden(nn.Linear(size, width), "inputs")

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., d]` for `x` `[..., d]`."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


MLPS: dict[str, type[GeluMLP] | type[SwiGLU]] = {"gelu": GeluMLP, "swiglu": SwiGLU}


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Apply layer norm without parameters, then `scale` and `shift` `[B, 1, d]`."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), 1 + scale)
