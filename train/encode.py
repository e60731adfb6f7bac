"""One attempt at encoding an image folder into a latent store, from its folder to its last event.

Ranks take whole shards in turn and agree after each round on whether to go on, so that the
store is the same for any number of them, and a kill loses at most the shards under way.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist

from configs.disk import replace_file
from configs.errors import DataError
from configs.run.folder import RunFolder
from configs.schema.encode import Encode, Encoding
from train.data.latents.encoding import Encoder
from train.data.latents.store import INDEX, Shard
from train.engine.attempt import Attempt, finish, run_attempt
from train.engine.distributed import Ranks, from_every_rank, max_over_ranks, process_group
from train.engine.environment import versions
from train.engine.metrics import log
from train.engine.stop import StopRequest


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an encoding is; `images` are those in finished shards, less the skipped."""

    shards: int
    of_shards: int
    images: int
    skipped: int

    def fields(self) -> dict[str, int]:
        """As fields of a record."""
        return {"step": self.shards, "images": self.images, "skipped": self.skipped}


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at encoding; the exit code (0 whenever the run folder is in order)."""
    return run_attempt(run, Encode, _run, number=number)


def _run(attempt: Attempt[Encode]) -> None:
    config, ranks = attempt.config, attempt.ranks
    with process_group(ranks):
        attempt.note(ranks=ranks.world, versions=versions())
        metrics = attempt.open_metrics(tensorboard=config.log.tensorboard)
        last = Progress(shards=0, of_shards=0, images=0, skipped=0)

        def report(progress: Progress) -> None:
            nonlocal last
            event, last = "saved" if last.of_shards else "started", progress
            metrics.event(event, **last.fields())
            log.info("%d of %d shards", last.shards, last.of_shards)

        request = encode(config.encode, ranks, request=attempt.stop_signals.request, report=report)
        finish(metrics, request, last.fields())


def encode(
    config: Encoding,
    ranks: Ranks,
    *,
    request: Callable[[], StopRequest],
    report: Callable[[Progress], None],
) -> StopRequest:
    """Make what the store still lacks, then its index; all ranks call it, in a process group.

    `GO_ON` once the store is whole; else the strongest wish of any rank, heard before the next
    round of shards. `report` hears what was there, and of every round. `ConfigError` where the
    folder holds another encoding, `DataError` for images or a VAE that cannot be used.
    """
    encoder = Encoder(config, device=ranks.device)
    if len(set(from_every_rank(encoder.listing_sha256))) > 1:
        raise DataError(f"{config.images}: ranks do not see the same images; wait, or share it")
    if ranks.rank == 0:
        encoder.claim()
    dist.barrier()
    mine = range(ranks.rank, encoder.shards, ranks.world)
    records = _joined({number: encoder.sound(number) for number in mine})
    report(_progress(records, encoder))
    missing = [number for number in range(encoder.shards) if number not in records]
    for begin in range(0, len(missing), ranks.world):
        heard = StopRequest(max_over_ranks(request()))
        if heard is not StopRequest.GO_ON:
            return heard
        turn = missing[begin : begin + ranks.world][ranks.rank : ranks.rank + 1]
        records |= _joined({number: encoder.make(number) for number in turn})
        report(_progress(records, encoder))
    if ranks.rank == 0:
        index = encoder.index([records[number] for number in sorted(records)])
        replace_file(encoder.out / INDEX, index.model_dump_json(indent=1) + "\n")
    dist.barrier()
    return StopRequest.GO_ON


def _joined(mine: dict[int, Shard | None]) -> dict[int, Shard]:
    """The records of all ranks; a shard without one is left out."""
    joined: dict[int, Shard] = {}
    for some in from_every_rank(mine):
        assert isinstance(some, dict)
        joined |= {number: record for number, record in some.items() if record is not None}
    return joined


def _progress(records: dict[int, Shard], encoder: Encoder) -> Progress:
    return Progress(
        shards=len(records),
        of_shards=encoder.shards,
        images=sum(record.examples for record in records.values()),
        skipped=sum(len(record.skipped) for record in records.values()),
    )
