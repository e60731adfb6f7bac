"""Latents and text embeddings, made once: a file for each image together with its own caption.

A file is named by the hash of all that it is made of, image and caption included, so an edited
one is made anew and no image can come by another's caption.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from configs.checks.captions import pairs
from configs.checks.prompts import filled, read_text
from configs.schema import Finetune

# Raised where what is made of the same input changes.
_VERSION = 1


@dataclass(frozen=True)
class PromptText:
    """A text to be embedded: a prompt, or the caption of an image."""

    text: str


@dataclass(frozen=True)
class CaptionedImage(PromptText):
    """An image with its caption."""

    image: Path


class Cache:
    """The files of one run; `settings` is what every one of them depends on."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._folder, self._settings = folder, settings
        self._names: dict[PromptText, str] = {}

    def file(self, text: PromptText) -> Path:
        """Where what is made of a text (and its image) stands."""
        if text not in self._names:
            parts = {"version": _VERSION, "text": text.text, **self._settings}
            if isinstance(text, CaptionedImage):
                parts["image"] = hashlib.sha256(text.image.read_bytes()).hexdigest()
            said = json.dumps(parts, sort_keys=True).encode()
            self._names[text] = hashlib.sha256(said).hexdigest()[:32]
        return self._folder / f"{self._names[text]}.safetensors"

    def missing(self, texts: Iterable[PromptText]) -> list[PromptText]:
        """Those that are not made yet, each once."""
        return [text for text in dict.fromkeys(texts) if not self.file(text).is_file()]

    def await_all(self, texts: Iterable[PromptText], *, longest_s: float = 60) -> None:
        """Wait until what other nodes made is seen here; OSError where something never is.

        A shared disk remembers for a while that a file was not there, until its folder is read.
        """
        wanted, begun = list(texts), time.monotonic()
        while lacking := self.missing(wanted):
            if time.monotonic() - begun > longest_s:
                raise FileNotFoundError(f"{self.file(lacking[0])}: made by a rank, not seen here")
            os.listdir(self._folder)
            time.sleep(0.2)

    def keep(self, text: PromptText, tensors: dict[str, Tensor]) -> None:
        """Write what was made of a text, with the text beside it for a person to read."""
        self._folder.mkdir(exist_ok=True)
        final = self.file(text)
        # Ranks that share an image write the same; each to a file of its own.
        beside = final.with_name(f"{final.name}.{os.getpid()}.partial")
        note = {"text": text.text}
        if isinstance(text, CaptionedImage):
            note["image"] = text.image.name
        save_file(tensors, str(beside), metadata=note)
        beside.replace(final)

    def tensors(self, text: PromptText) -> dict[str, Tensor]:
        """All that was made of a text, by name."""
        return load_file(str(self.file(text)))

    def part(self, text: PromptText, *names: str) -> list[Tensor]:
        """Some of what was made of a text."""
        with safe_open(str(self.file(text)), framework="pt") as file:
            return [file.get_tensor(name) for name in names]

    def shape(self, text: PromptText, name: str) -> tuple[int, ...]:
        """The shape of one tensor, without reading it."""
        with safe_open(str(self.file(text)), framework="pt") as file:
            return tuple(file.get_slice(name).get_shape())


def latent_name(resolution: int) -> str:
    """What the latent of an image at a resolution is called."""
    return f"latent.{resolution}"


class CacheRequest:
    """All that a run wants made: its images with captions, and the prompts of its samples."""

    def __init__(self, config: Finetune, prompts: list[str]) -> None:
        assert config.data.folder is not None
        self._config, self.folder = config, Path(config.data.folder)
        self.prompts = [PromptText(filled(prompt, config.data.trigger)) for prompt in prompts]

    @cached_property
    def images(self) -> list[CaptionedImage]:
        """The images of the data set, in the order of their names."""
        trigger = self._config.data.trigger
        return [
            CaptionedImage(filled(read_text(pair.caption), trigger), pair.image)
            for pair in pairs(self.folder)
        ]

    @property
    def no_caption(self) -> PromptText:
        """What stands for a caption that is left out."""
        return PromptText("")

    def all(self) -> list[PromptText]:
        """Everything, each with an embedding and images with latents too."""
        return [*self.images, self.no_caption, *self.prompts]
