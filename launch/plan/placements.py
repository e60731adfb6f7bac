"""The placements on which one run may train: GPU type, nodes and GPUs, and the layout that fits.

A placement is written `GPU:NODESxGPUS`. The global batch, and so the loss, is the same on all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from configs.checks.batch import check_ranks
from configs.errors import ConfigError
from configs.load import merge, resolve, to_tree
from configs.schema import Finetune, Pretrain, Run
from launch.plan import forecast
from launch.plan.forecast import ForecastAnswer
from launch.submit.script import RunRequest, overrides_from
from launch.submit.site import read_site
from runs.folder import ROOT


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A placement such as a40:1x2, the request that trains there, and the overrides that it adds.

    `refusal` is the reason for which the run cannot train there.
    """

    shape: str
    request: RunRequest
    overrides: list[str]
    refusal: str | None


def placements(
    request: RunRequest, shapes: Sequence[str], *, site_name: str | None
) -> list[Placement]:
    """Return the placement for each shape, with the first of its layouts that fits by the forecast.

    Without a forecast it is the first layout that divides. A later layout is asked for only on the
    shapes that earlier ones do not fit.
    """
    settings = {shape: list(_settings(request.config, shape)) for shape in shapes}
    found: dict[str, Placement] = {}
    for number in range(max(map(len, settings.values()), default=0)):
        tried = {
            shape: several[number]
            for shape, several in settings.items()
            if len(several) > number and (shape not in found or found[shape].refusal)
        }
        for (shape, changes), answer in zip(tried.items(), _answers(request, tried), strict=True):
            one = _placement(request, shape, changes, answer)
            found[shape] = found.get(shape, one) if one.refusal else one
    return [_at_its_site(one, site_name) for one in found.values()]


def _answers(request: RunRequest, tried: Mapping[str, Mapping[str, Any]]) -> list[ForecastAnswer]:
    if not isinstance(request.config, Pretrain | Finetune):
        return [ForecastAnswer()] * len(tried)
    yaml, own = request.query
    return forecast.ask([(yaml, [*own, *overrides_from(one)]) for one in tried.values()])


def _at_its_site(one: Placement, site_name: str | None) -> Placement:
    site = read_site(ROOT, one.request.config.resources, name=site_name)
    return replace(one, request=replace(one.request, site=site))


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


def _placement(
    request: RunRequest, shape: str, changes: dict[str, Any], answer: ForecastAnswer
) -> Placement:
    config, refusal, gpu = request.config, None, answer.gpu()
    if gpu is not None and changes.get("train.micro_batch") == "auto":
        # The search of `auto` would take minutes of the job.
        changes = changes | {"train.micro_batch": gpu["micro_batch"]}
    if gpu is not None and not gpu["fits"]:
        refusal = f"does not fit: {gpu['reason']}; would fit: {gpu['fix']}"
    try:
        config = resolve(merge(to_tree(config), changes), source=str(request.source))
        check_ranks(config, world=config.resources.world, engine=None)
    except ConfigError as error:
        refusal = str(error)
    return Placement(
        shape=shape,
        request=replace(request, config=config, forecast=gpu),
        overrides=overrides_from(changes),
        refusal=refusal,
    )
