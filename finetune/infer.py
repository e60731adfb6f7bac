"""One attempt at drawing images from a fine-tuned Flux, timed, from the run's folder to its end.

Every image has noise of its own seed, so it is the same whichever rank draws it. A record holds
`image_s` of one image; that of the first, which only warms up, stands as `first_image_s` before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from configs.checks.infer import InferSpec, infer_spec
from configs.run.folder import RunFolder
from configs.schema import Infer
from finetune.libraries import hide_progress_bars
from finetune.native.pipeline import save_image, save_row
from finetune.native.studio import LoraPipeline
from train.engine.attempt import Attempt, carry_out, conclude
from train.engine.clocks import Clocks
from train.engine.distributed import agreed, from_every_rank, process_group
from train.engine.environment import versions
from train.engine.metrics import MetricsLogger, log
from train.engine.stop import StopRequest

PURPOSES = ("setup", "load", "quantise", "text", "warmup", "sample", "save")


@dataclass(frozen=True, kw_only=True)
class ImageRequest:
    """An image: the number of its prompt, the seed of its noise, and where it is kept."""

    prompt: int
    seed: int
    file: Path


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at drawing; 0 whenever the run folder is in order."""
    return carry_out(run, Infer, _run, number=number)


def _run(attempt: Attempt[Infer]) -> None:
    hide_progress_bars()
    run, config, ranks = attempt.run, attempt.config, attempt.ranks
    clocks = Clocks(ranks.device, purposes=PURPOSES)
    asked = infer_spec(config)
    wanted = list(_wanted(run, config, asked))
    with process_group(ranks):
        missing = [image for image in wanted if not image.file.is_file()]
        # All ranks have looked before any of them draws.
        dist.barrier()
        lora = str(asked.lora) if asked.lora else None
        attempt.note(ranks=ranks.world, lora=lora, versions=versions())
        metrics = attempt.open_metrics()
        done = len(wanted) - len(missing)
        metrics.event("started", **_at(done))
        studio = LoraPipeline(
            asked, lora_scale=config.lora_scale, device=ranks.device, clocks=clocks
        )
        first = studio.warm_up(config.warmup)
        metrics.evaluation(_at(done) | first | clocks.fields())
        log.info("  ".join(f"{name} {s:.3f}" for name, s in (clocks.fields() | first).items()))
        artist = _Artist(attempt=attempt, studio=studio, metrics=metrics, clocks=clocks)
        request = artist.draw(missing, done=done)
        at = _at(sum(image.file.is_file() for image in wanted))
        if request is StopRequest.GO_ON and ranks.rank == 0:
            save_row([image.file for image in wanted[:: config.images]], run.samples / "all.png")
        conclude(metrics, request, at | clocks.fields())


@dataclass(frozen=True, kw_only=True)
class _Artist:
    """Draws in the studio, and says so; every rank must ask."""

    attempt: Attempt[Infer]
    studio: LoraPipeline
    metrics: MetricsLogger
    clocks: Clocks

    def draw(self, missing: list[ImageRequest], *, done: int) -> StopRequest:
        """Draw an image a rank at a time, after `done` that are there, until a wish to leave."""
        ranks = self.attempt.ranks
        for begin in range(0, len(missing), ranks.world):
            request = StopRequest(agreed(self.attempt.watch.request()))
            if request is not StopRequest.GO_ON:
                return request
            mine = missing[begin : begin + ranks.world][ranks.rank : ranks.rank + 1]
            found = [self._drawn(image) for image in mine]
            parts = [part for some in from_every_rank(found) for part in some]  # type: ignore[attr-defined]
            for place, fields in enumerate(parts, start=done + begin + 1):
                self.metrics.evaluation(_at(place) | fields | self.clocks.fields())
            self.metrics.event("saved", **_at(place))
        return StopRequest.GO_ON

    def _drawn(self, image: ImageRequest) -> dict[str, float]:
        """Draw and keep one image; what a record says of it."""
        prompt = self.studio.prompts[image.prompt]
        drawn = self.studio.draw(image.prompt, seed=image.seed)
        self.clocks.lap("sample")
        note = {"run": self.attempt.run.name, "prompt": prompt, "seed": str(image.seed)}
        save_image(drawn.image, image.file, note=note)
        self.clocks.lap("save")
        log.info("%.3f s  %s", drawn.image_s, image.file)
        return {"prompt": image.prompt, "seed": image.seed, "image_s": drawn.image_s}


def _wanted(run: RunFolder, config: Infer, asked: InferSpec) -> Iterator[ImageRequest]:
    for prompt in range(len(asked.prompts)):
        for place in range(config.images):
            file = run.samples / f"prompt-{prompt:02d}" / f"image-{place:04d}.png"
            seed = config.seed + prompt * config.images + place
            yield ImageRequest(prompt=prompt, seed=seed, file=file)


def _at(images: int) -> dict[str, int]:
    return {"step": images, "images": images}
