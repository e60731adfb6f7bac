"""Load the network whose features FID compares, and compute statistics of them."""

import hashlib
import io
import pickle
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import ConfigError
from configs.schema.data import Data
from train.data.catalog import open_source
from train.data.latents.store import checksum
from train.data.latents.vae import deterministic_cudnn
from train.data.source import held_out_split
from train.evaluate.distances import Statistics, mean_and_covariance, moments
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
# Images whose features are computed at once.
BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Features:
    """A network from images uint8 `[n, 3, H, W]` to features `[n, d]`; the checksum of its file.

    `name` is its kind and how it prepares the images.
    """

    network: Callable[[Tensor], Tensor]
    name: str
    sha256: str
    device: torch.device


def open_features(
    path: Path | None, *, device: torch.device, digits: Data | None = None
) -> Features:
    """Load the feature network from a file, or train the classifier of `digits`.

    A file holds torch-fidelity's Inception weights. Raises `ConfigError` for anything else. Only
    tensors are unpickled.
    """
    if path is None:
        if digits is None or digits.source != "digits" or not digits.held_out:
            raise ConfigError(f"--features FILE is missing: {_HOW_TO_GET_IT}")
        return _digits(digits, device)
    if not path.is_file():
        raise ConfigError(f"--features {path}: no such file; {_HOW_TO_GET_IT}")
    name = "Inception, bilinear to 299 as TensorFlow 1"
    network = _inception(path, device)
    return Features(network=network, name=name, sha256=checksum(path), device=device)


def _digits(data: Data, device: torch.device) -> Features:
    """Return the 45 decision values between pairs of digits of a support vector machine.

    It is trained on the held-out digits by libsvm, which has one thread and draws no numbers.
    """
    # Imported here: scikit-learn takes a second.
    from sklearn.svm import SVC

    source = held_out_split(open_source(data), data)
    examples = [source[index] for index in range(len(source))]
    images = np.stack([image.ravel() for image, _ in examples])
    labels = np.array([label for _, label in examples])
    classifier = SVC(C=10, decision_function_shape="ovo").fit(images, labels)

    def network(images: Tensor) -> Tensor:
        pixels = images[:, 0].flatten(1).cpu().numpy() / 127.5 - 1
        return torch.from_numpy(classifier.decision_function(pixels))

    name = "classifier of held-out digits, pixels in -1..1"
    sha256 = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    return Features(network=network, name=name, sha256=sha256, device=device)


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
            f"--features {file}: not Inception weights of torch-fidelity; {_HOW_TO_GET_IT}"
        ) from None
    network.to(device)
    return lambda images: network(images)[0]


def statistics(
    batches: Iterable[Pixels], features: Features, *, name: str, every: int = 1
) -> Statistics:
    """Return mean and covariance of the features of images `[n, H, W, 1 or 3]`, in one pass.

    The features of every `every`-th image are kept. Every ten seconds a line on stderr reports how
    many images of `name` are done.
    """
    count, origin, sums, kept = 0, np.empty(0), np.zeros(()), list[NDArray[np.float32]]()
    reported_at = time.monotonic()
    for batch in batches:
        rows = features_of(batch, features)
        # Sum differences from a first estimate of the mean, so that the squares keep digits.
        origin = origin if count else rows.mean(axis=0, dtype=np.float64)
        sums = sums + moments(rows - origin)
        kept.append(rows[-count % every :: every])
        count += len(rows)
        if time.monotonic() - reported_at >= _PROGRESS_EVERY_S:
            reported_at = time.monotonic()
            print(f"{name}: {count} images", file=sys.stderr)
    if count < 2:
        raise ConfigError(f"{name}: a covariance needs at least 2 images, found {count}")
    mu, sigma = mean_and_covariance(sums)
    return Statistics(mu=mu + origin, sigma=sigma, count=count, rows=np.concatenate(kept))


@torch.no_grad()
def features_of(batch: Pixels, features: Features) -> NDArray[np.float32]:
    """Return the features `[n, d]` of images `[n, H, W, 1 or 3]`."""
    images = torch.from_numpy(np.array(batch)).to(features.device)
    images = images.permute(0, 3, 1, 2).expand(-1, 3, -1, -1).contiguous()
    with deterministic_cudnn():
        rows = features.network(images)
    return rows.float().cpu().numpy()
