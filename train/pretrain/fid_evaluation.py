"""The Frechet and kernel distance of samples from a reference, during a pretraining."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from configs.run.folder import RunFolder
from configs.schema import Pretrain
from train.data.latents.store import read_index
from train.data.latents.vae import decode_samples, open_decoder
from train.diffusion.rng import sample_label
from train.engine.distributed import Ranks
from train.evaluate.fid import compare
from train.evaluate.fid_features import features_of, open_features
from train.evaluate.fid_reference import reference_statistics
from train.evaluate.sampler import sampler_facts, to_pixels


class FidEvaluation:
    """The features and the reference of `evaluate.fid`, and the `labels` `[num]` to draw.

    Collective: rank 0 computes the reference's statistics. Raises `ConfigError` or `DataError` if
    the features, the reference or the VAE are missing.
    """

    def __init__(self, config: Pretrain, run: RunFolder, *, ranks: Ranks) -> None:
        keys, self._config, self._ranks = config.evaluate.fid, config, ranks
        file = Path(keys.features) if keys.features else None
        self._features = open_features(file, device=ranks.device, digits=config.data)
        self._reference = Path(keys.reference or run.path)
        labels = [sample_label(config.seed, i, config.data.classes) for i in range(keys.num)]
        self.labels, side = torch.tensor(labels), config.data.size
        if open_decoder(config) is not None:
            side = read_index(Path(str(config.data.path))).images.size
        if ranks.rank == 0:
            self._statistics = reference_statistics(
                self._reference, self._features, side=side, batch=64
            )
        dist.barrier()

    def features(self, images: Tensor) -> Tensor:
        """Return the features `[n, d]` of samples `[n, C, H, W]`, which may be latents."""
        device = self._ranks.device
        # Statistics of a reference are not of autocast's precision either.
        with torch.autocast(device.type, enabled=False):
            pixels = to_pixels(decode_samples(images.float(), self._config, device=device))
            return torch.from_numpy(features_of(pixels, self._features))

    def fields(self, features: Tensor, *, weights: str) -> dict[str, Any]:
        """Return the record of the features `[num, d]` of the samples; on rank 0 only."""
        facts = {"weights": weights, "labels": "random", "seed": self._config.seed}
        facts |= {"reference": str(self._reference.absolute())} | sampler_facts(self._config)
        return compare(features.numpy(), self._statistics, self._features, facts=facts)
