"""Frechet and kernel distance of samples of the EMA weights from a reference."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from train.data.latents.store import read_index
from train.data.latents.vae import decode_on, open_decoder
from train.diffusion.rng import sample_label
from train.engine.part import Fields, Part
from train.evaluate.fid import compare
from train.evaluate.fid_features import features_of, open_features
from train.evaluate.fid_reference import reference_statistics
from train.evaluate.sampler import sampler_facts, to_pixels
from train.parts import Pretraining
from train.parts.samples import draw_from_ema


def make(training: Pretraining) -> Part | None:
    """Return the part of `evaluate.fid`, if it is on."""
    return FidEvaluation(training) if training.attempt.config.evaluate.fid.every else None


class FidEvaluation(Part):
    """The features and the reference of `evaluate.fid`, and the labels `[num]` to draw.

    Collective: rank 0 computes the reference's statistics. Raises `ConfigError` or `DataError` if
    the features, the reference or the VAE are missing.
    """

    order = 50

    def __init__(self, training: Pretraining) -> None:
        self._training, attempt = training, training.attempt
        self._config, self._device = attempt.config, attempt.ranks.device
        config, keys = self._config, self._config.evaluate.fid
        self.every = keys.every
        file = Path(keys.features) if keys.features else None
        self._features = open_features(file, device=self._device, digits=config.data)
        self._reference = Path(keys.reference or attempt.run.path)
        labels = [sample_label(config.seed, i, config.data.classes) for i in range(keys.num)]
        self._labels, side = torch.tensor(labels), config.data.size
        self._decoder = open_decoder(config)
        if self._decoder is not None:
            side = read_index(Path(str(config.data.path))).images.size
        if attempt.ranks.rank == 0:
            self._statistics = reference_statistics(self._reference, self._features, side=side)
        dist.barrier()

    def after(self, step: int) -> Fields | None:
        """Return the distances, on rank 0."""
        try:
            features = draw_from_ema(self._training, self._labels, then=self._features_of)
        finally:
            if self._decoder is not None:
                self._decoder.to(torch.device("cpu"))
        if features is None:
            return None
        weights = "ema" if self._training.train_state.ema.weights else "model"
        facts = {"weights": weights, "labels": "random", "seed": self._config.seed}
        facts |= {"reference": str(self._reference.absolute())} | sampler_facts(self._config)
        return compare(features.numpy(), self._statistics, self._features, facts=facts)

    def _features_of(self, images: Tensor) -> Tensor:
        """Return the features `[n, d]` of samples `[n, C, H, W]`, which may be latents."""
        # Statistics of a reference are not of autocast's precision either.
        with torch.autocast(self._device.type, enabled=False):
            images = images.float()
            if self._decoder is not None:
                images = decode_on(self._decoder, images, device=self._device)
            pixels = to_pixels(images)
            return torch.from_numpy(features_of(pixels, self._features))
