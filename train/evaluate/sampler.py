"""Draw images from a network: sample grids during training, numbered images from a saved run."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from configs.checks.batch import BatchLayout
from configs.disk import replacing
from configs.errors import ConfigError
from configs.load import expect, merge, resolve, to_tree
from configs.schema import Pretrain, Sampling, keys, tagged
from runs.folder import RunFolder, open_run
from train.data.latents.vae import open_decoder
from train.diffusion.objective import DiffusionObjective
from train.diffusion.rng import sample_label, sample_noise
from train.engine.checkpoint import load_weights
from train.engine.distributed import Ranks, data_rank, gather_rows
from train.engine.metrics import log
from train.engine.numerics import set_precision
from train.evaluate.npz import Metadata, Pixels
from train.model.build import Network, build_network
from train.model.parallelize import autocast, can_compile

_BATCH = 64


def sample(
    network: nn.Module,
    objective: DiffusionObjective,
    labels: Tensor,
    config: Pretrain,
    *,
    layout: BatchLayout,
    ranks: Ranks,
    then: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """Draw an image for each of `labels` `[N]`; return `then` of all images on rank 0, else None.

    Collective: every rank must call this. Image i depends only on the run's seed, i and its label.
    One rank draws a whole batch and applies `then`, so that the number of ranks changes nothing.
    """
    first, count = data_rank(ranks, layout), layout.data_ranks
    batches = torch.arange(len(labels)).split(_BATCH)
    mine = batches[first::count]
    shape = (config.data.channels, config.data.size, config.data.size)
    # Under FSDP every rank must call the network the same number of times. A rank that has no
    # images left draws the first image and drops it.
    idle = batches[0][:1]
    drawn: list[Tensor] = []
    for turn in range(-(-len(batches) // count)):
        batch = mine[turn] if turn < len(mine) else idle
        noise = _noise(config.seed, batch.tolist(), shape).to(ranks.device)
        images = objective.sample(network, noise, labels[batch].to(ranks.device))
        drawn.append(then(images).cpu())
    gathered = gather_rows(torch.cat(drawn)[: sum(map(len, mine))])
    if ranks.rank:
        return None
    parts = [part.split(_BATCH) for part in gathered[:: layout.tensor]]
    return torch.cat([parts[n % count][n // count] for n in range(len(batches))])


def _noise(seed: int, indices: list[int], shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.stack([sample_noise(seed, index, shape) for index in indices]))


def grid_labels(config: Pretrain) -> Tensor:
    """Return the labels of a sample grid: one row of `per_class` for each of the first classes."""
    classes = min(config.data.classes, config.sample.classes)
    return torch.arange(classes).repeat_interleave(config.sample.per_class)


def save_grid(images: Tensor, path: Path, *, columns: int) -> None:
    """Write images in -1..1 as one PNG. Small images are enlarged; one channel is drawn grey."""
    # Imported here: it takes a second, and only rank 0 needs it.
    from torchvision.utils import make_grid

    scale = max(1, 48 // images.shape[-1])
    images = images[:, :3] if images.shape[1] >= 3 else images[:, :1]
    large = images.repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3)
    grid = make_grid((large.clamp(-1, 1) + 1) / 2, nrow=columns, padding=scale)
    path.parent.mkdir(exist_ok=True)
    pixels = (grid * 255).round().byte().permute(1, 2, 0).numpy()
    with replacing(path) as file:
        Image.fromarray(pixels).save(file, "PNG")


class RunSampler:
    """Draws numbered images from a checkpoint of a pretraining run.

    Image i depends only on the seed, i and its label. Raises `ConfigError` if the run is not a
    pretraining run or its objective does not support the sampler, and `DataError` if the VAE that
    decodes its latents is missing.
    """

    def __init__(self, sampling: Sampling, *, device: torch.device) -> None:
        assert sampling.run is not None
        self._sampling, self._device = sampling, device
        self._run = open_run(Path(sampling.run))
        self._config = _sampled_config(self._run, sampling)
        set_precision(self._config.train.precision, device)
        decoder = open_decoder(self._config)
        self._decoder = decoder.to(device) if decoder else None
        channels = decoder.image_channels if decoder else self._config.data.channels
        if channels not in (1, 3):
            raise ConfigError(
                f"run {sampling.run}: its images have {channels} channels; only images of 1 or 3 "
                "channels can be drawn to a file"
            )
        self._network = _open_network(self._config, device)
        self._objective = DiffusionObjective(self._config, device)

    def load(self, earlier: Metadata | None) -> Metadata:
        """Load the weights, at the step in `earlier` if given; return what determines images."""
        step = earlier["checkpoint"] if earlier else self._sampling.step
        step, images = load_weights(
            self._run.checkpoints, self._network, which=self._sampling.weights, step=step
        )
        log.info("drawing from %s, step %d", self._run.path, step)
        identity = {name: getattr(self._sampling, name) for name in tagged("sample", "picture")}
        return identity | sampler_facts(self._config) | {"checkpoint": step, "images": images}

    @torch.no_grad()
    def draw(self, indices: list[int]) -> Pixels:
        """Return the images `indices`, `[n, H, W, 3]`; a grey image has three equal channels."""
        data, count = self._config.data, len(indices)
        # A last, smaller batch would be compiled again: the last image fills it up.
        size = min(self._sampling.batch, self._sampling.num)
        indices = [*indices, *indices[-1:] * (size - count)]
        noise = _noise(self._sampling.seed, indices, (data.channels, data.size, data.size))
        labels = torch.tensor([self._label(index) for index in indices])
        with autocast(self._config.train.precision, self._device):
            images = self._objective.sample(
                self._network, noise.to(self._device), labels.to(self._device)
            ).float()[:count]
        return to_pixels(self._decoder.decode(images) if self._decoder else images)

    def labels(self) -> NDArray[np.int64]:
        """Return the label of every image, `[num]`."""
        labels = [self._label(index) for index in range(self._sampling.num)]
        return np.array(labels, dtype=np.int64)

    def _label(self, index: int) -> int:
        classes = self._config.data.classes
        if self._sampling.labels == "turn":
            return index % classes
        return sample_label(self._sampling.seed, index, classes)


def _sampled_config(run: RunFolder, sampling: Sampling) -> Pretrain:
    """Return the config of the run to draw from, with the overrides of the sampling run."""
    config = expect(run.config(), Pretrain, source=run.path)
    values = {
        info.replaces: getattr(sampling, info.name)
        for info in keys("sample").values()
        if info.replaces is not None
    }
    changes = {key: value for key, value in values.items() if value is not None}
    tree = merge(to_tree(config), changes)
    return expect(resolve(tree, source=str(run.path)), Pretrain, source=run.path)


def sampler_facts(config: Pretrain) -> Metadata:
    """Return what the sampler of a run does."""
    interval = [config.sample.guidance_low, config.sample.guidance_high]
    return {
        "sampler": config.sample.sampler,
        "steps": config.sample.steps,
        "guidance": config.sample.guidance,
        # None by default, as older versions recorded.
        "guidance_interval": interval if interval != [0, 1] else None,
        "precision": config.train.precision,
    }


def _open_network(config: Pretrain, device: torch.device) -> nn.Module:
    network = build_network(config).to(device).eval()
    if config.train.compile and can_compile(device):
        for block in cast(Network, network).blocks:
            block.compile()
    return network


def to_pixels(images: Tensor) -> Pixels:
    """Convert images `[n, 1 or 3, H, W]` in -1..1 to bytes `[n, H, W, 3]`, rounded."""
    levels = (images * 127.5 + 128).clamp(0, 255).byte().cpu()
    pixels: Pixels = levels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).contiguous().numpy()
    return pixels
