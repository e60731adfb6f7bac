"""What a sampling run draws with: network, sampler, labels and decoder, each as the run's own."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import ConfigError
from configs.load import expect, merge, resolve, to_tree
from configs.run.folder import open_run
from configs.schema import Pretrain, Sampling
from train.data.latents.vae import open_decoder
from train.diffusion.objective import DiffusionObjective
from train.diffusion.rng import sample_label, sample_noise
from train.engine.checkpoint import load_weights
from train.engine.metrics import log
from train.evaluate.npz import Pixels
from train.model.build import build_network
from train.model.parallelize import DTYPES

# The keys of a sampling run that stand for a key of the run it draws from.
_KEYS = {
    "sampler": "sample.sampler",
    "steps": "sample.steps",
    "guidance": "sample.guidance",
    "precision": "train.precision",
}


class RunSampler:
    """Draws images by their numbers; image i depends on the seed, i and its label alone.

    `ConfigError` where the run is no pretraining run, or the sampler is not for its objective;
    `DataError` where the VAE that decodes is gone.
    """

    def __init__(self, asked: Sampling, *, device: torch.device) -> None:
        assert asked.run is not None
        self._asked, self._device = asked, device
        self._run = open_run(Path(asked.run))
        self._config = config_of_drawing(asked)
        decoder = open_decoder(self._config)
        self._decoder = decoder.to(device) if decoder else None
        channels = decoder.image_channels if decoder else self._config.data.channels
        if channels not in (1, 3):
            raise ConfigError(
                f"run {asked.run}: its images have {channels} channels; only images of 1 or 3 are "
                "drawn to a file"
            )
        self._network = build_network(self._config).to(device).eval()
        self._objective = DiffusionObjective(self._config, device)

    def note(self) -> dict[str, Any]:
        """What is drawn, but for the step of the checkpoint: equal notes make equal images."""
        asked, config = self._asked, self._config
        return {
            "run": asked.run,
            "weights": asked.weights,
            "num": asked.num,
            "batch": asked.batch,
            "labels": asked.labels,
            "seed": asked.seed,
            "sampler": config.sample.sampler,
            "steps": config.sample.steps,
            "guidance": config.sample.guidance,
            "precision": config.train.precision,
        }

    def load(self, begun: dict[str, Any] | None) -> dict[str, Any]:
        """Load the weights, those that were `begun` with if any; the note with their step."""
        step = begun["checkpoint"] if begun else self._asked.step
        step, images = load_weights(
            self._run.checkpoints, self._network, which=self._asked.weights, step=step
        )
        log.info("drawing from %s, step %d", self._run.path, step)
        return self.note() | {"checkpoint": step, "images": images}

    @torch.no_grad()
    def draw(self, numbers: list[int]) -> Pixels:
        """The images of these numbers, `[n, H, W, 3]`; grey ones are three times the same."""
        data = self._config.data
        shape = (data.channels, data.size, data.size)
        noise = np.stack([sample_noise(self._asked.seed, number, shape) for number in numbers])
        labels = torch.tensor([self._label(number) for number in numbers])
        with self._autocast():
            images = self._objective.sample(
                self._network,
                torch.from_numpy(noise).to(self._device),
                labels.to(self._device),
            )
        images = images.float()
        return pixels_of(self._decoder.decode(images) if self._decoder else images)

    def labels(self) -> NDArray[np.int64]:
        """The label of every image, `[num]`."""
        return np.array([self._label(number) for number in range(self._asked.num)], dtype=np.int64)

    def _label(self, number: int) -> int:
        classes = self._config.data.classes
        if self._asked.labels == "turn":
            return number % classes
        return sample_label(self._asked.seed, number, classes)

    def _autocast(self) -> torch.autocast:
        dtype = DTYPES[self._config.train.precision]
        lower = dtype is not torch.float32
        return torch.autocast(self._device.type, dtype if lower else torch.bfloat16, enabled=lower)


def config_of_drawing(asked: Sampling) -> Pretrain:
    """The config of the run that is drawn from, with what was asked otherwise."""
    assert asked.run is not None
    own = expect(open_run(Path(asked.run)).config(), Pretrain, source=asked.run)
    values = {key: getattr(asked, name) for name, key in _KEYS.items()}
    changes = {key: value for key, value in values.items() if value is not None}
    return expect(
        resolve(merge(to_tree(own), changes), source=asked.run), Pretrain, source=asked.run
    )


def pixels_of(images: Tensor) -> Pixels:
    """Images `[n, 1 or 3, H, W]` in -1..1 as bytes `[n, H, W, 3]`, rounded."""
    levels = (images * 127.5 + 128).clamp(0, 255).byte().cpu()
    pixels: Pixels = levels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).contiguous().numpy()
    return pixels
