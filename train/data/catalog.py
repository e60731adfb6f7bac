"""Open the data set that a config names."""

from pathlib import Path

from configs.errors import DataError
from configs.schema import Pretrain
from configs.schema.data import Data
from train.data.cifar10 import open_cifar10
from train.data.digits import Digits
from train.data.folder import ImageFolder, list_images
from train.data.latents.checks import config_problems, quick_problems
from train.data.latents.dataset import Latents
from train.data.latents.store import read_index
from train.data.source import DummyLatents, Source, training_split
from train.diffusion.alignment import check_features


def open_source(data: Data) -> Source:
    """Return the whole data set. Raise `DataError` if it is missing, broken or does not fit."""
    source = _open(data)
    if len(source) == 0:
        raise DataError(f"{data.path}: holds no images")
    shape = source[0][0].shape
    if shape != (data.channels, data.size, data.size):
        raise DataError(
            f"data.source {data.source} has images of {' x '.join(map(str, shape))}, the config "
            f"asks for {data.channels} x {data.size} x {data.size}: set data.channels and data.size"
        )
    return source


def open_images(config: Pretrain) -> tuple[Source, Source]:
    """Return the whole data set, and the images of it to train on.

    Raise `DataError` if these are too few, or lack the features that the config aligns with.
    """
    source = open_source(config.data)
    images = training_split(source, config.data)
    if len(images) < config.train.global_batch:
        raise DataError(
            f"{len(images)} training images are fewer than train.global_batch "
            f"{config.train.global_batch}"
        )
    check_features(source, config)
    return source, images


def _open(data: Data) -> Source:
    if data.source == "dummy":
        shape = (data.channels, data.size, data.size)
        return DummyLatents(images=data.images, shape=shape, classes=data.classes)
    if data.source == "digits":
        return Digits()
    assert data.path is not None
    path = Path(data.path)
    if not path.is_dir():
        raise DataError(f"data.path {path}: no such folder")
    if data.source == "latents":
        return _open_latents(path, data)
    if data.source == "cifar10":
        return open_cifar10(path)
    return ImageFolder(
        list_images(path), size=data.size, channels=data.channels, classes=data.classes
    )


def _open_latents(folder: Path, data: Data) -> Latents:
    """Return the latents of a store that passes the checks cheap enough for every start."""
    index = read_index(folder)
    problems = config_problems(index, data) or quick_problems(folder, index)
    if problems:
        raise DataError("\n".join(f"{folder}: {problem}" for problem in problems))
    return Latents(folder, index)
