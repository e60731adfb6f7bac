"""Where a patch stands: rotary in every attention, or sinusoids added to the patches once."""

import torch
from torch import Tensor


def rope_table(side: int, head_dim: int, *, before: int = 0, theta: float = 100.0) -> Tensor:
    """Cosines and sines of a `side` x `side` grid of tokens, `[2, T, head_dim]` in float32.

    Rotary embedding (Su et al. 2021), half of each head per axis; `before` more tokens, which
    stand nowhere and are not turned, come first.

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
    angles = torch.cat([angles.new_zeros(before, 2 * pairs), angles])
    both = torch.cat([angles, angles], dim=1)
    return torch.stack([both.cos(), both.sin()]).float()


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """`x` `[..., T, head_dim]` with each channel pair (i, i + head_dim/2) turned by its angle."""
    cos, sin = table.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def sincos_table(side: int, width: int) -> Tensor:
    """Sinusoids of a `side` x `side` grid, `[T, width]` in float32, as DiT adds them to patches.

    Each quarter of the channels holds the sines or cosines of the column, then of the row
    (Peebles & Xie 2023).
    """
    quarter = width // 4
    frequencies = 10_000.0 ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
    places = torch.arange(side, dtype=torch.float64)
    rows, columns = torch.meshgrid(places, places, indexing="ij")
    parts = [axis.reshape(-1, 1) * frequencies for axis in (columns, rows)]
    return torch.cat([wave(part) for part in parts for wave in (torch.sin, torch.cos)], 1).float()
