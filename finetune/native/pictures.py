"""Images as the VAE takes them: scaled to a resolution, cropped to whole tokens, in -1..1."""

import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from configs.checks.captions import open_image


def fitted_size(width: int, height: int, *, resolution: int, bucket: int) -> tuple[int, int]:
    """Width and height that an image is seen at: of its shape, with the area of `resolution`.

    The sides are multiples of `bucket`; nothing is enlarged, so a small image keeps about its
    own area, as ai-toolkit has it.
    """
    scale = min(1.0, resolution / math.sqrt(width * height))
    across = max(bucket, round(width * scale / bucket) * bucket)
    down = max(bucket, round(height * scale / bucket) * bucket)
    # Rounding must not make it larger than asked for: memory is planned by the resolution.
    while across * down > resolution**2 and max(across, down) > bucket:
        across, down = (across - bucket, down) if across >= down else (across, down - bucket)
    return across, down


def pixels(file: Path, *, resolution: int, bucket: int) -> Tensor:
    """The image at a resolution, `[3, H, W]` in -1..1, cropped in the middle."""
    image = ImageOps.exif_transpose(open_image(file)).convert("RGB")
    size = fitted_size(image.width, image.height, resolution=resolution, bucket=bucket)
    fitted = ImageOps.fit(image, size, Image.Resampling.LANCZOS)
    return torch.from_numpy(np.array(fitted)).permute(2, 0, 1) / 127.5 - 1
