"""The shapes on which one run may train: GPU type, nodes and GPUs, and the layout that fits there.

The global batch, and with it the loss, is the same on all of them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from configs.checks.batch import check_ranks
from configs.errors import ConfigError
from configs.load import merge, resolve, to_tree
from configs.run.folder import ROOT
from configs.schema import Finetune, Pretrain
from configs.yaml12 import dump_value
from launch import forecast
from launch.forecast import ForecastAnswer
from launch.submit.script import RunRequest
from launch.submit.site import read_site

_SHAPE = re.compile(r"([A-Za-z][\w.-]*)(?::(?:([1-9]\d*)x)?([1-9]\d*))?")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A type of GPU, nodes, and GPUs per node, written `a40:1x2`."""

    gpu: str
    nodes: int
    gpus_per_node: int

    def __str__(self) -> str:
        return f"{self.gpu}:{self.nodes}x{self.gpus_per_node}"


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A request on one shape with the layout that fits, and the forecast of its GPU, if known.

    `refusal` says why the run cannot train on the shape.
    """

    shape: Shape
    request: RunRequest
    forecast: dict[str, Any] | None
    refusal: str | None


def parse_shapes(text: str, request: RunRequest) -> list[Shape]:
    """Parse `GPU[:[NODESx]GPUS],...`; numbers that are missing are those of the config."""
    resources, shapes = request.config.resources, []
    for word in text.split(","):
        match = _SHAPE.fullmatch(word.strip())
        if match is None:
            raise ConfigError(
                f"--first: {word!r} is no shape; write GPU:NODESxGPUS, as in a40:1x2,a100:1x1"
            )
        gpu, nodes, gpus = match.groups()
        shape = Shape(
            gpu=gpu,
            nodes=int(nodes or (1 if gpus else resources.nodes)),
            gpus_per_node=int(gpus or resources.gpus_per_node or 1),
        )
        if shape in shapes:
            raise ConfigError(f"--first: {shape} is named twice")
        shapes.append(shape)
    return shapes


def alternatives(
    request: RunRequest, shapes: Sequence[Shape], *, site_name: str | None
) -> list[Alternative]:
    """Return the run on each shape, with the first of its layouts that fits by the forecast.

    One process answers for all. Without a forecast it is the first layout that divides.
    """
    yaml = request.resumes.config_file if request.resumes else request.source
    tried = [(shape, one) for shape in shapes for one in _changes(request, shape)]
    answers = [ForecastAnswer()] * len(tried)
    if isinstance(request.config, Pretrain | Finetune):
        answers = forecast.ask(
            [(yaml, [*request.overrides, *_words(changes)]) for _, changes in tried]
        )
    found = [
        _alternative(request, shape, changes, answer)
        for (shape, changes), answer in zip(tried, answers, strict=True)
    ]
    best = [
        min((one for one in found if one.shape == shape), key=lambda one: one.refusal is not None)
        for shape in shapes
    ]
    site_of = partial(read_site, ROOT, name=site_name)
    return [
        replace(one, request=replace(one.request, site=site_of(one.request.config.resources)))
        for one in best
    ]


def _words(changes: dict[str, Any]) -> list[str]:
    return [f"{name}={dump_value(value)}" for name, value in changes.items()]


def _changes(request: RunRequest, shape: Shape) -> Iterator[dict[str, Any]]:
    """Yield the free keys to set for a shape: as the config says, then with less memory per GPU."""
    config = request.config
    own: dict[str, Any] = {
        "resources.gpu": shape.gpu,
        "resources.nodes": shape.nodes,
        "resources.gpus_per_node": shape.gpus_per_node,
    }
    if not isinstance(config, Pretrain):
        yield own
        return
    if config.layout.replicate is not None:
        own["layout.replicate"] = None
    yield own
    own = own | {"train.micro_batch": "auto"}
    yield own
    ranks, tensor = shape.nodes * shape.gpus_per_node, config.layout.tensor
    if ranks % tensor == 0 and ranks // tensor != config.layout.shard:
        yield own | {"layout.shard": ranks // tensor}


def _alternative(
    request: RunRequest, shape: Shape, changes: dict[str, Any], answer: ForecastAnswer
) -> Alternative:
    gpu = next(iter(answer.gpus.values()), None)
    if gpu is not None and changes.get("train.micro_batch") == "auto":
        # The search of `auto` would take minutes of the job.
        changes = changes | {"train.micro_batch": gpu["micro_batch"]}
    config, refusal = request.config, None
    if gpu is not None and not gpu["fits"]:
        refusal = f"{shape}: does not fit: {gpu['reason']}; would fit: {gpu['fix']}"
    try:
        config = resolve(merge(to_tree(config), changes), source=str(request.source))
        check_ranks(config, world=config.resources.world, run=request.resumes)
    except ConfigError as error:
        refusal = f"{shape}: {error}"
    return Alternative(
        shape=shape,
        request=replace(request, config=config, shape=str(shape), follows=_words(changes)),
        forecast=gpu,
        refusal=refusal,
    )
