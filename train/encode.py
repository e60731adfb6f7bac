"""One attempt at encoding an image folder into a latent store.

Each rank makes one whole shard per round, and the ranks agree after each round on whether to
continue. The store does not depend on the number of ranks, and a kill loses at most one round.
"""

import contextlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch.distributed as dist

from configs.disk import replace_file
from configs.errors import DataError
from configs.schema.encode import Encode, Encoding
from train.data.latents.encoding import Encoder
from train.data.latents.store import INDEX, ShardEntry
from train.engine.attempt import Attempt, finish
from train.engine.distributed import Ranks, from_every_rank, max_over_ranks, process_group
from train.engine.environment import versions
from train.engine.metrics import log
from train.engine.numerics import set_precision
from train.engine.stop import StopRequest


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of an encoding; `images` counts encoded images in finished shards."""

    shards: int
    of_shards: int
    images: int

    def fields(self) -> dict[str, int]:
        """Return the fields of a record."""
        return {"step": self.shards, "images": self.images}


def carry_out(attempt: Attempt[Encode]) -> None:
    """Carry out an attempt at encoding."""
    config, ranks = attempt.config, attempt.ranks
    with process_group(ranks):
        attempt.note(ranks=ranks.world, versions=versions())
        metrics = attempt.open_metrics(tensorboard=config.log.tensorboard)
        last = Progress(shards=0, of_shards=0, images=0)

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
    """Make the missing shards of a store, then its index. Collective, within a process group.

    Return `GO_ON` once the store is complete, else the strongest stop request of any rank, which
    is checked before each round. `report` is called at the start and after each round. Raise
    `ConfigError` if the folder holds another encoding, `DataError` for unusable images or VAE.
    """
    set_precision(config.precision, ranks.device)
    encoder = Encoder(config, device=ranks.device)
    if len(set(from_every_rank(encoder.listing_sha256))) > 1:
        raise DataError(f"{config.images}: ranks do not see the same images; wait, or share it")
    if ranks.rank == 0:
        encoder.claim_folder()
    dist.barrier()
    mine = range(ranks.rank, encoder.shard_count, ranks.world)
    records = _gather({number: encoder.finished_shard(number) for number in mine})
    report(_progress(records, encoder))
    missing = [number for number in range(encoder.shard_count) if number not in records]
    with contextlib.closing(encoder.make_shards(missing[ranks.rank :: ranks.world])) as made:
        for _ in range(0, len(missing), ranks.world):
            stop_request = StopRequest(max_over_ranks(request()))
            if stop_request is not StopRequest.GO_ON:
                return stop_request
            records |= _gather(dict(itertools.islice(made, 1)))
            report(_progress(records, encoder))
    if ranks.rank == 0:
        index = encoder.index([records[number] for number in sorted(records)])
        replace_file(encoder.out / INDEX, index.model_dump_json(indent=1) + "\n")
    dist.barrier()
    return StopRequest.GO_ON


def _gather(mine: Mapping[int, ShardEntry | None]) -> dict[int, ShardEntry]:
    """Return the records of all ranks, without the shards that have none. Collective."""
    gathered: dict[int, ShardEntry] = {}
    made = {number: record.model_dump() for number, record in mine.items() if record is not None}
    for records in from_every_rank(list(made.items())):
        gathered |= {number: ShardEntry(**record) for number, record in records}
    return gathered


def _progress(records: dict[int, ShardEntry], encoder: Encoder) -> Progress:
    return Progress(
        shards=len(records),
        of_shards=encoder.shard_count,
        images=sum(record.examples for record in records.values()),
    )
