"""Load the network whose features FID compares, and compute statistics of them."""

import hashlib
import io
import pickle
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import ConfigError
from train.data.latents.vae import deterministic_cudnn
from train.evaluate.npz import Pixels

_INCEPTION = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)
_HOW_TO_GET_IT = (
    f"the Inception weights for FID are at {_INCEPTION}; download them on a machine with internet "
    "access, which compute nodes often lack, and give the file"
)
_PROGRESS_EVERY_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Features:
    """A network from images uint8 `[n, 3, H, W]` to features `[n, d]`; the checksum of its file."""

    network: Callable[[Tensor], Tensor]
    sha256: str
    device: torch.device


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Mean `[d]` and covariance `[d, d]` of the features of `count` images, in float64."""

    mu: NDArray[np.float64]
    sigma: NDArray[np.float64]
    count: int


def open_features(file: Path | None, *, device: torch.device) -> Features:
    """Load the feature network from a file of torch-fidelity's Inception weights or TorchScript.

    Raises `ConfigError` if the file is missing or neither of them. Only tensors are unpickled.
    """
    if file is None:
        raise ConfigError(f"--features FILE is missing: {_HOW_TO_GET_IT}")
    if not file.is_file():
        raise ConfigError(f"--features {file}: no such file; {_HOW_TO_GET_IT}")
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    network = (_scripted if _is_scripted(file) else _inception)(file, device)
    return Features(network=network, sha256=sha256, device=device)


def _is_scripted(file: Path) -> bool:
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any("/code/" in name for name in archive.namelist())


def _scripted(file: Path, device: torch.device) -> Callable[[Tensor], Tensor]:
    with warnings.catch_warnings():
        # Deprecated in favour of torch.export, but the files of FID networks are older.
        warnings.simplefilter("ignore", FutureWarning)
        network = torch.jit.load(str(file), map_location=device).eval()
    # The file of StyleGAN and EDM returns classes unless features are requested.
    names = [argument.name for argument in network.forward.schema.arguments]
    extra = {"return_features": True} if "return_features" in names else {}
    return lambda images: network(images, **extra)


def _inception(file: Path, device: torch.device) -> Callable[[Tensor], Tensor]:
    # Imported here: it takes a second.
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
        # The library unpickles its input without checks, so give it these tensors saved again.
        trusted = io.BytesIO()
        torch.save(weights, trusted)
        trusted.seek(0)
        network: Any = FeatureExtractorInceptionV3(
            "inception-v3-compat", ["2048"], feature_extractor_weights_path=trusted
        )
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError):
        raise ConfigError(
            f"--features {file}: neither TorchScript nor Inception weights; {_HOW_TO_GET_IT}"
        ) from None
    network.to(device)
    return lambda images: network(images)[0]


@torch.no_grad()
def statistics(batches: Iterable[Pixels], features: Features, *, name: str) -> Statistics:
    """Return mean and covariance of the features of images `[n, H, W, 1 or 3]`, in one pass.

    Every ten seconds a line on stderr reports how many images of `name` are done.
    """
    count, origin = 0, torch.empty(0)
    total = squares = torch.empty(0)
    reported_at = time.monotonic()
    for batch in batches:
        rows = _features_of(batch, features)
        if not count:
            # Sum differences from a first estimate of the mean, so that the squares keep digits.
            origin = rows.mean(dim=0)
            total, squares = torch.zeros_like(origin), torch.zeros_like(rows.T @ rows)
        count += len(rows)
        total += (rows - origin).sum(dim=0)
        squares += (rows - origin).T @ (rows - origin)
        if time.monotonic() - reported_at >= _PROGRESS_EVERY_S:
            reported_at = time.monotonic()
            print(f"{name}: {count} images", file=sys.stderr)
    if count < 2:
        raise ConfigError(f"{name}: a covariance needs at least 2 images, found {count}")
    sigma = (squares - torch.outer(total, total) / count) / (count - 1)
    mu = origin + total / count
    return Statistics(mu=mu.cpu().numpy(), sigma=sigma.cpu().numpy(), count=count)


def _features_of(batch: Pixels, features: Features) -> Tensor:
    images = torch.from_numpy(np.array(batch)).to(features.device)
    images = images.permute(0, 3, 1, 2).expand(-1, 3, -1, -1).contiguous()
    with deterministic_cudnn():
        rows = features.network(images)
    if rows.ndim != 2 or len(rows) != len(images):
        raise ConfigError(
            f"--features: from images {list(images.shape)} the network made {list(rows.shape)}; "
            f"expected [{len(images)}, d]"
        )
    return rows.double()


def frechet_distance(one: Statistics, other: Statistics) -> float:
    """Return the squared Frechet distance of two normal distributions (Dowson & Landau 1982).

    |mu1 - mu2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)).
    """
    from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_statistics_to_metric

    pair = [{"mu": each.mu, "sigma": each.sigma} for each in (one, other)]
    return float(fid_statistics_to_metric(*pair, verbose=False)[KEY_METRIC_FID])
