"""Features of images by a frozen DINOv2 (Oquab et al. 2023), for REPA (Yu et al. 2024)."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from configs.errors import DataError
from train.data.latents.store import FeatureFacts, checksum

# Mean and standard deviation of ImageNet's channels in 0..1, by which DINOv2 normalises.
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def _load_dinov2(folder: Path, device: torch.device) -> tuple[Any, str]:
    """Return the DINOv2 in a folder that transformers saved, and the checksum of its files.

    Raise `DataError` if the folder holds none.
    """
    # A late import: transformers takes seconds to import.
    from transformers import AutoModel
    from transformers import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    try:
        network: Any = AutoModel.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: no DINOv2 of transformers: {error}") from None
    if not network.config.model_type.startswith("dinov2"):
        raise DataError(f"{folder}: a {network.config.model_type}, not a DINOv2")
    sha256 = checksum(folder / "config.json", *sorted(folder.glob("*.safetensors")))
    return network.to(device).eval().requires_grad_(False), sha256


class FeatureEncoder:
    """A DINOv2 in a folder that transformers saved, on a device; one feature per cell of a grid."""

    def __init__(self, folder: Path, *, grid: int, device: torch.device) -> None:
        self._network, sha256 = _load_dinov2(folder, device)
        config = self._network.config
        self._count, self._side = grid**2, grid * int(config.patch_size)
        self._factors = torch.tensor(_IMAGENET, device=device)[:, :, None, None]
        self.facts = FeatureFacts(
            path=str(folder.absolute()),
            sha256=sha256,
            shape=(self._count, int(config.hidden_size)),
        )

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Return features `[n, grid**2, D]` of images `[n, 1 or 3, H, W]` in -1..1, by rows.

        They are resized to one patch of the encoder per feature; the class token and registers,
        which come first, are dropped.
        """
        mean, std = self._factors
        images = ((images.expand(-1, 3, -1, -1) + 1) / 2 - mean) / std
        images = F.interpolate(images, self._side, mode="bicubic")
        features: Tensor = self._network(images).last_hidden_state[:, -self._count :]
        return features
