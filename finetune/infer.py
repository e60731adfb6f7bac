"""One attempt at an infer run: sample images from a fine-tuned Flux and time each of them.

Every image starts from the noise of its own seed, so it does not depend on the rank that samples
it. A record holds the `image_s` of one image; the time of the first warm-up image is recorded
apart, as `first_image_s`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from configs.schema import Infer
from finetune.native.base_model import hide_progress_bars
from finetune.native.pipeline import LoraPipeline, save_image
from runs.checks.infer import InferSpec, infer_spec
from runs.folder import RunFolder
from train.engine.attempt import Attempt, finish
from train.engine.clocks import Clocks
from train.engine.distributed import from_every_rank, max_over_ranks, process_group
from train.engine.environment import versions
from train.engine.metrics import MetricsLogger, log
from train.engine.numerics import set_precision
from train.engine.stop import StopRequest

PURPOSES = ("setup", "load", "text", "warmup", "sample", "save")


@dataclass(frozen=True, kw_only=True)
class ImageRequest:
    """An image to sample: the index of its prompt, the seed of its noise, its file."""

    prompt: int
    seed: int
    file: Path


def carry_out(attempt: Attempt[Infer]) -> None:
    """Carry out an attempt at sampling images."""
    hide_progress_bars()
    run, config, ranks = attempt.run, attempt.config, attempt.ranks
    clocks = Clocks(ranks.device, purposes=PURPOSES)
    spec = infer_spec(config)
    images = list(_images(run, config, spec))
    set_precision(spec.tuned.train.precision, ranks.device)
    with process_group(ranks):
        missing = [image for image in images if not image.file.is_file()]
        # Every rank lists what is missing before any rank writes.
        dist.barrier()
        attempt.note(
            ranks=ranks.world, lora=str(spec.lora), prompts=spec.prompts, versions=versions()
        )
        metrics = attempt.open_metrics()
        done = len(images) - len(missing)
        metrics.event("started", **_at(done))
        pipeline = LoraPipeline(
            spec, lora_scale=config.lora_scale, device=ranks.device, clocks=clocks
        )
        first = pipeline.warm_up(config.warmup)
        metrics.evaluation(_at(done) | first | clocks.fields())
        log.info("  ".join(f"{name} {s:.3f}" for name, s in (clocks.fields() | first).items()))
        stop = _sample_all(attempt, pipeline, missing, done=done, metrics=metrics, clocks=clocks)
        at = _at(sum(image.file.is_file() for image in images))
        finish(metrics, stop, at | clocks.fields())


def _images(run: RunFolder, config: Infer, spec: InferSpec) -> Iterator[ImageRequest]:
    for prompt in range(len(spec.prompts)):
        for index in range(config.images):
            file = run.samples / f"prompt-{prompt:02d}" / f"image-{index:04d}.png"
            seed = config.seed + prompt * config.images + index
            yield ImageRequest(prompt=prompt, seed=seed, file=file)


def _sample_all(
    attempt: Attempt[Infer],
    pipeline: LoraPipeline,
    missing: list[ImageRequest],
    *,
    done: int,
    metrics: MetricsLogger,
    clocks: Clocks,
) -> StopRequest:
    """Sample one image per rank at a time until a stop request; `done` images exist already."""
    ranks = attempt.ranks
    for begin in range(0, len(missing), ranks.world):
        stop = StopRequest(max_over_ranks(attempt.stop_signals.request()))
        if stop is not StopRequest.GO_ON:
            return stop
        mine = missing[begin : begin + ranks.world][ranks.rank : ranks.rank + 1]
        fields = [_sample(attempt, pipeline, image, clocks) for image in mine]
        gathered = [each for found in from_every_rank(fields) for each in found]
        for count, each in enumerate(gathered, start=done + begin + 1):
            metrics.evaluation(_at(count) | each | clocks.fields())
        metrics.event("saved", **_at(count))
    return StopRequest.GO_ON


def _sample(
    attempt: Attempt[Infer], pipeline: LoraPipeline, image: ImageRequest, clocks: Clocks
) -> dict[str, float]:
    """Sample and save one image; return the fields of its record."""
    sampled = pipeline.sample(image.prompt, seed=image.seed)
    clocks.lap("sample")
    prompt = pipeline.prompts[image.prompt]
    metadata = {"run": attempt.run.name, "prompt": prompt, "seed": str(image.seed)}
    save_image(sampled.image, image.file, metadata=metadata)
    clocks.lap("save")
    log.info("%.3f s  %s", sampled.image_s, image.file)
    return {"prompt": image.prompt, "seed": image.seed, "image_s": sampled.image_s}


def _at(images: int) -> dict[str, int]:
    return {"step": images, "images": images}
