"""How long a step takes: measured here before, otherwise guessed from its FLOPs; needs no torch."""

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from configs.checks.batch import BatchLayout
from configs.disk import replace_file
from configs.gpus import Gpu, named_gpu
from configs.schema import Pretrain
from train.cost.kept import cost_folder
from train.cost.line import Memory
from train.cost.memory import facts, stacks_of

# The share of the dense peak that the FLOPs of a whole step reach: a guess. Public trainers of
# diffusion transformers report 12 to 25 %, their best kernels would reach 50 %.
_MFU = 0.35
# The factor that the guess may be off either way. Stated, not measured.
_FACTOR = 2.0
# The least share that a measured step may be off. Steps of a digits run on a quiet CPU took up to
# 5 % longer than measured: data and records are not in the measurement.
_MEASURED_OFF = 0.1


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds per step, an interval from `low` to `high`, and where they come from."""

    value: float
    low: float
    high: float
    source: str


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """Median seconds of a step of one microbatch, and of each further microbatch.

    `spread` is the interquartile range of the former over its median, `steps` their number.
    """

    once_s: float
    microbatch_s: float
    spread: float
    steps: int

    def seconds(self, accumulation: int) -> float:
        """Return the seconds of a step of so many microbatches."""
        return self.once_s + (accumulation - 1) * self.microbatch_s


def step_time(
    config: Pretrain, layout: BatchLayout, *, memory: Memory, gpu: str, peaks: Gpu
) -> StepTime | None:
    """Return a step's seconds on all ranks; None if the GPU only emulates the precision.

    `gpu` is the short name of the GPU, `peaks` what it reaches.
    """
    if found := measured(config, layout, gpu=gpu):
        seconds, off = found.seconds(layout.accumulation), max(_MEASURED_OFF, found.spread)
        source = f"measured in {found.steps} steps"
        return StepTime(
            value=seconds, low=seconds * (1 - off), high=seconds * (1 + off), source=source
        )
    tflops: float | None = getattr(peaks.peak_tflops, config.train.precision)
    if tflops is None:
        return None
    seconds = memory.flops / (_MFU * tflops * 1e12)
    source = f"guess: {_MFU:.0%} of peak"
    return StepTime(value=seconds, low=seconds / _FACTOR, high=seconds * _FACTOR, source=source)


def keep_measured(config: Pretrain, layout: BatchLayout, found: MeasuredStep, *, gpu: str) -> None:
    """Keep a measured step by its config, GPU and torch."""
    file = _file(config, layout, gpu)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(asdict(found)))


def measured(config: Pretrain, layout: BatchLayout, *, gpu: str) -> MeasuredStep | None:
    """Return the measured step of the same network, micro batch, layout, GPU and torch, if any."""
    try:
        tree = json.loads(_file(config, layout, gpu).read_text(encoding="utf-8"))
        return MeasuredStep(**tree)
    except (OSError, ValueError, TypeError):
        return None


def _file(config: Pretrain, layout: BatchLayout, gpu: str) -> Path:
    name = gpu if gpu == "cpu" else named_gpu(gpu).name
    known = facts(config, layout, stacks_of(config, layout)) | {
        "depth": config.model.depth,
        "micro_batch": layout.micro_batch,
        "replicate": layout.replicate,
        "gpu": name,
        "torch": version("torch").partition("+")[0],
    }
    text = json.dumps(known, sort_keys=True)
    return cost_folder() / f"step-{hashlib.sha256(text.encode()).hexdigest()}.json"
