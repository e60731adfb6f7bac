"""Forecasts by counting on tensors without data: beside the closed form, and for U-Nets alone."""

import dataclasses
from dataclasses import asdict

import torch

from configs.checks.batch import BatchLayout
from configs.schema import Pretrain
from train.forecast.dry_run import DryRunMemory, count_memory
from train.forecast.estimate import Forecast, GpuEstimate, judge
from train.forecast.memory import COMMUNICATION, CONTEXT, GIB, SLACK, Memory
from train.forecast.query import ForecastQuery
from train.model.build import build_network, network_macs


def counted_gib(config: Pretrain, layout: BatchLayout) -> dict[str, float]:
    """GiB by kind on one rank."""
    return {name: size / GIB for name, size in asdict(count_memory(config, layout)).items()}


def division_of(layout: BatchLayout, outlook: GpuEstimate) -> BatchLayout:
    """The division with the micro batch that an outlook was made for."""
    share = layout.micro_batch * layout.accumulation
    return dataclasses.replace(
        layout,
        micro_batch=outlook.micro_batch,
        accumulation=share // outlook.micro_batch,
    )


def forecast_unet(cell: ForecastQuery) -> Forecast:
    """The outlook of a U-Net: between counted micro batches its memory is taken as a line."""
    macs = network_macs(cell.config)
    with torch.device("meta"):
        network = build_network(cell.config)
    line = _Line()
    return Forecast(
        config=cell.source,
        world=cell.world,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        macs=macs,
        gpus={
            name: judge(cell, gpu, macs=macs, memory_of=line.memory)
            for name, gpu in cell.gpus.items()
        },
    )


class _Line:
    """Memory by micro batch, from counts of 4 and 8 images; below 4, counted."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, bool], DryRunMemory] = {}

    def memory(self, config: Pretrain, layout: BatchLayout) -> Memory:
        """As `dit_memory` gives it."""
        images = layout.micro_batch
        if images < 4:
            return _memory(self._count(config, layout, images), layout)
        few, many = (self._count(config, layout, size) for size in (4, 8))
        along = (images - 4) / 4
        peak = few.peak + along * (many.peak - few.peak)
        kept = few.activations + along * (many.activations - few.activations)
        counted = dataclasses.replace(many, peak=round(peak), activations=round(kept))
        return _memory(counted, layout)

    def _count(self, config: Pretrain, layout: BatchLayout, images: int) -> DryRunMemory:
        key = images, layout.accumulation > 1
        if key not in self._counts:
            tried = dataclasses.replace(layout, micro_batch=images)
            self._counts[key] = count_memory(config, tried)
        return self._counts[key]


def _memory(counted: DryRunMemory, layout: BatchLayout) -> Memory:
    return Memory(
        parameters=counted.parameters,
        gradients=counted.gradients,
        optimizer=counted.optimizer,
        average=counted.average,
        activations=counted.activations,
        gathered=0.0,
        cast=0.0,
        work=0.0,
        overhead=CONTEXT + COMMUNICATION * (layout.world > 1) + SLACK * counted.peak,
        peak=counted.peak,
    )
