"""Cards: small JSON files of a site, each with what one kind of device was measured to do."""

import os
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, PositiveInt, model_validator

from configs.errors import ConfigError
from configs.gpus import find_gpu, gpu_names, named_gpu
from configs.schema.key import KeyGroup
from runs.folder import logs_folder
from runs.json_files import read_json

Kind = TypeVar("Kind")


class Measured(KeyGroup):
    """The median seconds of an operation; `spread` is half their interquartile range over it.

    Shapes: `product` [m, n, k], y = x W with both its gradients; `attention` [images, heads,
    tokens, head_dim] and `step` [width, tokens, images, depth], forward and backward; `update`
    [parameters]; `copy` and `storage` [bytes]; `all_reduce` [bytes, ranks, nodes]; `launch` [1].
    """

    name: Literal[
        "product", "attention", "step", "update", "copy", "storage", "all_reduce", "launch"
    ]
    shape: list[PositiveInt]
    precision: str | None = None
    compiled: bool = False
    value: float = Field(gt=0)
    spread: float = Field(ge=0)
    unit: Literal["s"] = "s"

    @model_validator(mode="after")
    def _shape_is_of_its_kind(self) -> "Measured":
        axes = {"product": 3, "attention": 4, "step": 4, "all_reduce": 3}
        if len(self.shape) != axes.get(self.name, 1):
            raise ValueError(f"{self.name}: not a shape of it: {self.shape}")
        return self


class Card(KeyGroup):
    """The measurements of a device, with the versions and facts for which they hold."""

    schema_version: Literal[1] = 1
    device: str = Field(min_length=1)
    time: float
    versions: dict[str, str]
    facts: dict[str, float]
    measured: list[Measured] = Field(min_length=1)

    def of(
        self, name: str, precision: str | None = None, *, compiled: bool = False
    ) -> list[Measured]:
        """Return the measurements of a name in a precision."""
        wanted = (name, precision, compiled)
        return [m for m in self.measured if (m.name, m.precision, m.compiled) == wanted]


class Fit(KeyGroup):
    """The factor of measured over predicted seconds, the deviation of its log, and its runs.

    `machines` are the kinds of device and the precisions of these runs, such as `a40 bf16`.
    """

    schema_version: Literal[1] = 1
    factor: float = Field(gt=0)
    spread: float = Field(ge=0)
    runs: int = Field(ge=1)
    machines: list[str]


def card_key(device: str) -> str:
    """Return the name of a device's card: that of the GPU in gpus.yaml, else a form of its own."""
    known = find_gpu(device)
    names = (name for name in gpu_names() if known and named_gpu(name)[1] is known)
    return next(names, re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-"))


def cards_folder() -> Path:
    """Return the site's folder of cards: `CARDS` of the site file, else `.cards` in `LOGS`."""
    return Path(os.environ.get("CARDS") or logs_folder() / ".cards")


@cache
def find_card(key: str) -> Card | None:
    """Return the site's card of a device; print why one that is there does not hold."""
    return _valid(lambda: read_card(cards_folder() / f"{key}.json"))


@cache
def find_fit() -> Fit | None:
    """Return the site's fit; print why one that is there does not hold."""
    fix = "fit again: ditbench card --fit"
    return _valid(lambda: read_json(cards_folder() / "fit.json", Fit, fix=fix))


def _valid(read: Callable[[], Kind]) -> Kind | None:
    try:
        return read()
    except FileNotFoundError:
        return None
    except ConfigError as error:
        print(f"ignored: {error}", file=sys.stderr)
        return None


def read_card(path: Path) -> Card:
    """Return the card in a file. Raise `ConfigError` if it is damaged, or of another installation.

    The versions of torch must have the same first number. The driver here says nothing of the card:
    it may be that of a login node.
    """
    card = read_json(path, Card, fix="make it again: ditbench card")
    if card_key(card.device) != path.stem:
        raise ConfigError(f"{path}: is of another device, {card.device}; make it again")
    here, there = _torch(), card.versions.get("torch")
    if here and there and here.partition(".")[0] != there.partition(".")[0]:
        raise ConfigError(f"{path}: was made with torch {there}, here is {here}; make it again")
    return card


def _torch() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return None
