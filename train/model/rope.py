"""Two-dimensional rotary position embedding (Su et al. 2021), half of each head per axis."""

import torch
from torch import Tensor


def rope_table(side: int, head_dim: int, *, theta: float = 100.0) -> Tensor:
    """Cosines and sines of a `side` x `side` grid of tokens, `[2, T, head_dim]` in float32.

    The first half of the channel pairs turns with the row, the second with the column.
    `theta` is 100 rather than the 10,000 of text: no image has ten thousand rows.
    """
    pairs = head_dim // 4
    frequencies = theta ** -(torch.arange(pairs, dtype=torch.float64) / pairs)
    places = torch.arange(side, dtype=torch.float64)
    rows, columns = torch.meshgrid(places, places, indexing="ij")
    angles = torch.cat(
        [rows.reshape(-1, 1) * frequencies, columns.reshape(-1, 1) * frequencies], dim=1
    )
    both = torch.cat([angles, angles], dim=1)
    return torch.stack([both.cos(), both.sin()]).float()


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """`x` `[..., T, head_dim]` with each channel pair (i, i + head_dim/2) turned by its angle."""
    cos, sin = table.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
