"""The shapes on which one run may train: GPU type, nodes and GPUs, and the layout that fits there.

A shape is written `GPU:NODESxGPUS`. The global batch, and so the loss, is the same on all of them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from configs.checks.batch import check_ranks
from configs.errors import ConfigError
from configs.load import merge, resolve, to_tree
from configs.schema import Finetune, Pretrain, Run
from launch import forecast
from launch.forecast import ForecastAnswer
from launch.submit.script import RunRequest, overrides_from
from launch.submit.site import read_site
from runs.folder import ROOT

_SHAPE = re.compile(r"(\w[\w.-]*)(?::(?:([1-9]\d*)x)?([1-9]\d*))?")


def parse_shapes(text: str, config: Run) -> list[str]:
    """Parse `GPU[:[NODESx]GPUS],...`; numbers that are missing are those of the config."""
    nodes, gpus = config.resources.nodes, config.resources.gpus_per_node or 1
    shapes: list[str] = []
    for word in text.split(","):
        match = _SHAPE.fullmatch(word.strip())
        if match is None:
            raise ConfigError(
                f"--first: {word!r} is no shape; write GPU:NODESxGPUS, as in a40:1x2,a100:1x1"
            )
        shapes.append(f"{match[1]}:{match[2] or nodes}x{match[3] or gpus}")
        if shapes[-1] in shapes[:-1]:
            raise ConfigError(f"--first: {shapes[-1]} is named twice")
    return shapes


def alternatives(
    request: RunRequest, shapes: Sequence[str], *, site_name: str | None
) -> list[RunRequest]:
    """Return the request for each shape, with the first of its layouts that fits by the forecast.

    One process answers for all. Without a forecast it is the first layout that divides.
    """
    yaml, own = request.query
    tried = [(shape, one) for shape in shapes for one in _settings(request.config, shape)]
    answers = [ForecastAnswer()] * len(tried)
    if isinstance(request.config, Pretrain | Finetune):
        words = [[*own, *overrides_from(changes)] for _, changes in tried]
        answers = forecast.ask([(yaml, one) for one in words])
    found: dict[str, RunRequest] = {}
    for (shape, changes), answer in zip(tried, answers, strict=True):
        if shape not in found or found[shape].refusal:
            one = _alternative(request, shape, changes, answer)
            found[shape] = found.get(shape, one) if one.refusal else one
    return [
        replace(one, site=read_site(ROOT, one.config.resources, name=site_name))
        for one in found.values()
    ]


def _settings(config: Run, shape: str) -> Iterator[dict[str, Any]]:
    """Yield the free keys to set for a shape: as the config says, then with less memory per GPU."""
    gpu, _, size = shape.partition(":")
    nodes, gpus = map(int, size.split("x"))
    own = {"gpu": gpu, "nodes": nodes, "gpus_per_node": gpus}
    changes: dict[str, Any] = {f"resources.{name}": value for name, value in own.items()}
    if not isinstance(config, Pretrain):
        yield changes
        return
    changes |= {} if config.layout.replicate is None else {"layout.replicate": None}
    yield changes
    yield changes | {"train.micro_batch": "auto"}
    if nodes * gpus % config.layout.tensor == 0:
        shard = nodes * gpus // config.layout.tensor
        yield changes | {"train.micro_batch": "auto", "layout.shard": shard}


def _alternative(
    request: RunRequest, shape: str, changes: dict[str, Any], answer: ForecastAnswer
) -> RunRequest:
    config, refusal, gpu = request.config, None, answer.gpu()
    if gpu is not None and changes.get("train.micro_batch") == "auto":
        # The search of `auto` would take minutes of the job.
        changes = changes | {"train.micro_batch": gpu["micro_batch"]}
    if gpu is not None and not gpu["fits"]:
        refusal = f"{shape}: does not fit: {gpu['reason']}; would fit: {gpu['fix']}"
    try:
        config = resolve(merge(to_tree(config), changes), source=str(request.source))
        check_ranks(config, world=config.resources.world, engine=None)
    except ConfigError as error:
        refusal = f"{shape}: {error}"
    words = overrides_from(changes)
    return replace(
        request, config=config, shape=shape, follows=words, forecast=gpu, refusal=refusal
    )
