"""The images of a fine-tuning, each with a caption in NAME.txt."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from configs.checks.captions import fill_trigger, open_image, read_text
from configs.errors import ConfigError
from configs.schema import Finetune

CAPTION = ".txt"
# The formats that both engines read.
IMAGES = (".png", ".jpg", ".jpeg", ".webp")


@dataclass(frozen=True, kw_only=True)
class CaptionedFile:
    """An image with a caption."""

    image: Path

    @property
    def name(self) -> str:
        """The name of the image in the data set's folder."""
        return self.image.name

    @property
    def caption(self) -> Path:
        """The file that holds the caption."""
        return self.image.with_suffix(CAPTION)

    def text(self) -> str:
        """Return the caption; raise `ConfigError` if it cannot be read."""
        return read_text(self.caption)


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """The images of a config, by use."""

    training: list[CaptionedFile]
    held_out: list[CaptionedFile]


def image_set(config: Finetune) -> ImageSet:
    """Find the images of a config; raise `ConfigError` as `captioned_files` does.

    The images held out of `data.folder` are those whose names have the smallest hashes: the same
    for every seed, and mostly the same after an image is added.
    """
    data, count = config.data, config.validation.held_out
    assert data.folder is not None
    found = captioned_files(Path(data.folder))
    if 0 < len(found) <= count:
        raise ConfigError(
            f"validation.held_out {count}: {data.folder} has {len(found)} images, so none would be "
            "trained on; hold out fewer"
        )
    hashed = sorted(found, key=lambda each: hashlib.sha256(each.name.encode()).digest())
    names = {each.name for each in hashed[:count]}
    return ImageSet(
        training=[each for each in found if each.name not in names],
        held_out=[each for each in found if each.name in names],
    )


def captioned_files(folder: Path) -> list[CaptionedFile]:
    """Return the images of a folder, sorted by name; hidden ones are left out.

    Raise `ConfigError` for images in a sub-folder: whether to train on them is unclear.
    """
    for below in sorted(folder.iterdir()):
        if below.is_dir() and below.name[0] != "." and _images(below):
            raise ConfigError(
                f"{below}: images of a sub-folder are not trained on; move them to {folder}, or "
                "elsewhere"
            )
    return [CaptionedFile(image=image) for image in _images(folder)]


def _images(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in IMAGES and file.is_file() and file.name[0] != "."
    )


def check_dataset(config: Finetune) -> None:
    """Raise `ConfigError` for an image that lacks a caption or cannot be decoded."""
    found = image_set(config)
    if not found.training:
        kinds = " ".join(IMAGES)
        raise ConfigError(f"{config.data.folder}: contains no images; add some (any of {kinds})")
    images = [*found.training, *found.held_out]
    image_of = {each.image.with_suffix(""): each.image for each in images}
    for each in images:
        if problem := caption_problem(each, image_of[each.image.with_suffix("")]):
            raise ConfigError(
                f"{each.image}: {problem} (for all problems: ditbench check {config.data.folder})"
            )
        fill_trigger(each.text(), config.data.trigger)
        open_image(each.image)


def caption_problem(pair: CaptionedFile, image: Path) -> str | None:
    """Return the problem, with the fix, of an image that has no caption of its own.

    `image` is the last one of its name, whatever the suffix.
    """
    if image != pair.image:
        return f"shares its caption with {image.name}; rename one"
    if not pair.caption.is_file():
        return f"no caption; write {pair.caption.name}: one line that describes the image"
    return None
