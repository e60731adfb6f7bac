"""A cache of latents and text embeddings: one file per image, together with its own caption.

The runs of a study share a folder. A file name is the hash of everything the content depends on,
image and caption included: after an edit the file is made again, and no image can be paired with
the caption of another.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from configs.checks.captions import fill_trigger
from configs.checks.dataset import CaptionedFile, image_set
from configs.disk import replacing
from configs.files import read_bytes
from configs.schema import Finetune

# Increase it when the same input gives other content.
_VERSION = 1


@dataclass(frozen=True)
class PromptText:
    """A text to embed: a prompt, or the caption of an image."""

    text: str


@dataclass(frozen=True)
class CaptionedImage(PromptText):
    """An image and its caption."""

    image: Path


NO_CAPTION = PromptText("")


class CacheInputs:
    """Everything that a run caches: images with captions, sample prompts, the empty caption.

    `images` holds each training image once; `training` holds an image as often as an epoch does.
    """

    def __init__(self, config: Finetune) -> None:
        found, trigger = image_set(config), config.data.trigger
        self.prompts = [fill_trigger(prompt, trigger) for prompt in config.sample.prompts]
        self.training = _repeated(found.training, trigger)
        self.images = list(dict.fromkeys(self.training))
        self.held_out = list(dict.fromkeys(_repeated(found.held_out, trigger)))

    def all(self) -> list[PromptText]:
        """Return all inputs; each gets an embedding, and each image gets its latents too."""
        prompts = map(PromptText, self.prompts)
        return [*self.images, *self.held_out, NO_CAPTION, *prompts]


def _repeated(files: Iterable[CaptionedFile], trigger: str | None) -> list[CaptionedImage]:
    return [
        CaptionedImage(fill_trigger(file.text(), trigger), file.image)
        for file in files
        for _ in range(file.repeats)
    ]


class Cache:
    """Cache files in a folder; their names depend on `settings`."""

    def __init__(self, folder: Path, *, settings: dict[str, Any]) -> None:
        self._folder, self._settings = folder, settings
        self._names: dict[PromptText, str] = {}

    def file(self, text: PromptText) -> Path:
        """Return the path of the file for a text (and its image)."""
        if text not in self._names:
            key = {"version": _VERSION, "text": text.text, **self._settings}
            if isinstance(text, CaptionedImage):
                key["image"] = hashlib.sha256(read_bytes(text.image)).hexdigest()
            encoded = json.dumps(key, sort_keys=True).encode()
            self._names[text] = hashlib.sha256(encoded).hexdigest()[:32]
        return self._folder / f"{self._names[text]}.safetensors"

    def missing(self, texts: Iterable[PromptText]) -> list[PromptText]:
        """Return the texts that have no file yet, without duplicates."""
        return [text for text in dict.fromkeys(texts) if not self.file(text).is_file()]

    def wait_for(self, texts: Iterable[PromptText], *, timeout_s: float = 60) -> None:
        """Wait until the files that other nodes wrote are visible; raise OSError on timeout.

        A shared file system may remember for a while that a file did not exist, until its folder
        is listed.
        """
        expected, begin = list(texts), time.monotonic()
        while missing := self.missing(expected):
            if time.monotonic() - begin > timeout_s:
                raise FileNotFoundError(
                    f"{self.file(missing[0])}: written by another rank, but not visible here"
                )
            if self._folder.is_dir():
                os.listdir(self._folder)
            time.sleep(0.2)

    def save(self, text: PromptText, tensors: dict[str, Tensor]) -> None:
        """Write the tensors of a text, with the text in the metadata for human readers."""
        metadata = {"text": text.text}
        if isinstance(text, CaptionedImage):
            metadata["image"] = text.image.name
        self._folder.mkdir(exist_ok=True)
        # Ranks and runs that share an image write the same, each to a file of its own.
        with replacing(self.file(text)) as file:
            save_file(tensors, file.name, metadata=metadata)

    def load(self, text: PromptText) -> dict[str, Tensor]:
        """Load all tensors of a text, by name."""
        return load_file(str(self.file(text)))

    def load_some(self, text: PromptText, *names: str) -> list[Tensor]:
        """Load the named tensors of a text."""
        with safe_open(str(self.file(text)), framework="pt") as file:
            return [file.get_tensor(name) for name in names]

    def shape(self, text: PromptText, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor without reading the tensor."""
        with safe_open(str(self.file(text)), framework="pt") as file:
            return tuple(file.get_slice(name).get_shape())


def latent_name(resolution: int) -> str:
    """Return the tensor name of the latent of an image at a resolution."""
    return f"latent.{resolution}"
