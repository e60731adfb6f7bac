"""One attempt at drawing images from a fine-tuned Flux, timed, from the run's folder to its end.

Every image has noise of its own seed, so it is the same whichever rank draws it. A record holds
`image_s` of one image; that of the first, which only warms up, stands as `first_image_s` before.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from configs.drawing import Drawing, drawing
from configs.run import RunFolder
from configs.schema import Infer
from finetune.embedded.painter import save_image, save_row
from finetune.embedded.studio import Studio
from finetune.libraries import hide_progress_bars
from train.attempt import carry_out
from train.clocks import Clocks
from train.dist import Ranks, agreed, from_every_rank, process_group
from train.facts import placement, versions
from train.journal import Journal, log
from train.stopping import ENDS, Watch, Wish

PURPOSES = ("setup", "load", "quantise", "text", "warmup", "sample", "save")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An image: the number of its prompt, the seed of its noise, and where it is kept."""

    prompt: int
    seed: int
    file: Path


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at drawing; 0 whenever the run folder is in order."""
    return carry_out(run, Infer, _run, number=number)


def _run(run: RunFolder, config: Infer, ranks: Ranks, attempt: int) -> None:
    hide_progress_bars()
    clocks = Clocks(ranks.device, purposes=PURPOSES)
    watch = Watch(run, attempt=attempt)
    asked = drawing(config)
    wanted = list(_wanted(run, config, asked))
    with process_group(ranks):
        missing = [image for image in wanted if not image.file.is_file()]
        # All ranks have looked before any of them draws.
        places = placement(ranks)
        dist.barrier()
        if places is not None:
            facts = {"lora": str(asked.lora) if asked.lora else None, "versions": versions()}
            run.note(attempt, placement=places, ranks=ranks.world, **facts)
        journal = Journal(run, attempt=attempt, rank=ranks.rank, tensorboard=False)
        at = _at(len(wanted) - len(missing))
        journal.event("started", **at)
        studio = Studio(asked, lora_scale=config.lora_scale, device=ranks.device, clocks=clocks)
        first = studio.warm_up(config.warmup)
        journal.evaluation(at | first | clocks.fields())
        log.info("  ".join(f"{name} {s:.3f}" for name, s in (clocks.fields() | first).items()))
        wish = _draw(run, studio, wanted, missing, watch, journal, clocks, ranks)
        at = _at(sum(image.file.is_file() for image in wanted))
        if wish is Wish.GO_ON and ranks.rank == 0:
            save_row([image.file for image in wanted[:: config.images]], run.samples / "all.png")
        if wish is not Wish.LEAVE:
            journal.event(ENDS[wish], **at, **clocks.fields())
        journal.close()


def _draw(
    run: RunFolder,
    studio: Studio,
    wanted: list[Wanted],
    missing: list[Wanted],
    watch: Watch,
    journal: Journal,
    clocks: Clocks,
    ranks: Ranks,
) -> Wish:
    """Draw what is missing, an image a rank at a time, until all is there or a wish to leave."""
    for begin in range(0, len(missing), ranks.world):
        wish = Wish(agreed(watch.wish()))
        if wish is not Wish.GO_ON:
            return wish
        mine = missing[begin : begin + ranks.world][ranks.rank : ranks.rank + 1]
        found = [_drawn(run, studio, image, clocks) for image in mine]
        parts = [part for some in from_every_rank(found) for part in some]  # type: ignore[attr-defined]
        for place, fields in enumerate(parts, start=len(wanted) - len(missing) + begin + 1):
            journal.evaluation(_at(place) | fields | clocks.fields())
        journal.event("saved", **_at(place))
    return Wish.GO_ON


def _drawn(run: RunFolder, studio: Studio, image: Wanted, clocks: Clocks) -> dict[str, float]:
    """Draw and keep one image; what a record says of it."""
    drawn = studio.draw(image.prompt, seed=image.seed)
    clocks.lap("sample")
    note = {"run": run.name, "prompt": studio.prompts[image.prompt], "seed": str(image.seed)}
    save_image(drawn.image, image.file, note=note)
    clocks.lap("save")
    log.info("%.3f s  %s", drawn.image_s, image.file)
    return {"prompt": image.prompt, "seed": image.seed, "image_s": drawn.image_s}


def _wanted(run: RunFolder, config: Infer, asked: Drawing) -> Iterator[Wanted]:
    for prompt in range(len(asked.prompts)):
        for place in range(config.images):
            file = run.samples / f"prompt-{prompt:02d}" / f"image-{place:04d}.png"
            seed = config.seed + prompt * config.images + place
            yield Wanted(prompt=prompt, seed=seed, file=file)


def _at(images: int) -> dict[str, int]:
    return {"step": images, "images": images}
