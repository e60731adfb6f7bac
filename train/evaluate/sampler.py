"""Images drawn from a network, shared out over the ranks, and the grid that shows them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from configs.disk import sync_folder
from configs.schema import Pretrain
from train.diffusion.objective import DiffusionObjective
from train.diffusion.rng import sample_noise
from train.engine.distributed import to_rank_0

_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class SampleShare:
    """This rank's share of images, one in `count`; `tensor` neighbouring ranks have the same."""

    number: int = 0
    count: int = 1
    tensor: int = 1


def sample(
    network: nn.Module,
    objective: DiffusionObjective,
    labels: Tensor,
    config: Pretrain,
    *,
    place: SampleShare,
    device: torch.device,
    seed: int,
) -> Tensor | None:
    """One image for each of `labels` `[N]`, `[N, C, H, W]` on rank 0 and None elsewhere.

    Image i depends on `seed`, i and its label alone, not on how many ranks share the work.
    """
    mine = list(range(place.number, len(labels), place.count))
    shape = (config.data.channels, config.data.size, config.data.size)
    drawn: list[Tensor] = []
    # Under FSDP every rank must call the network equally often.
    most = len(range(0, len(labels), place.count))
    for begin in range(0, most, _BATCH):
        numbers = mine[begin : begin + _BATCH] or [0]
        noise = torch.from_numpy(np.stack([sample_noise(seed, i, shape) for i in numbers]))
        images = objective.sample(network, noise.to(device), labels[numbers].to(device))
        drawn.append(images.cpu()[: len(mine[begin : begin + _BATCH])])
    parts = to_rank_0(torch.cat(drawn))
    if parts is None:
        return None
    whole = torch.empty(len(labels), *shape)
    for number, part in enumerate(parts[:: place.tensor]):
        assert isinstance(part, Tensor)
        whole[number :: place.count] = part
    return whole


def grid_labels(config: Pretrain) -> Tensor:
    """The labels of a grid, `per_class` in a row of each of the first classes."""
    classes = min(config.data.classes, config.sample.classes)
    return torch.arange(classes).repeat_interleave(config.sample.per_class)


def save_grid(images: Tensor, path: Path, *, columns: int) -> None:
    """Write images in -1..1 as one PNG, small ones enlarged to be seen; one channel is grey."""
    # Imported where wanted: it costs a second that most ranks need not spend.
    from torchvision.utils import make_grid

    scale = max(1, 48 // images.shape[-1])
    images = images[:, :3] if images.shape[1] >= 3 else images[:, :1]
    large = images.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    grid = make_grid((large.clamp(-1, 1) + 1) / 2, nrow=columns, padding=scale)
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".partial.png")
    pixels = (grid * 255).round().byte().permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(temporary)
    temporary.replace(path)
    sync_folder(path.parent)
