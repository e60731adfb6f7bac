"""Draw many images from a run, for example for FID: one attempt, from its folder to its last event.

A shard holds the images of one batch, whichever rank draws it. The images are therefore the same
on any number of ranks, and a kill loses at most the batches in progress. Every rank holds the
whole network: a network that does not fit on one GPU cannot be sampled here.
"""

from collections.abc import Callable

import torch.distributed as dist

from configs.schema.sample import Sampling
from train.engine.attempt import Attempt, finish
from train.engine.distributed import Ranks, from_rank_0, max_over_ranks, process_group
from train.engine.environment import versions
from train.engine.metrics import log
from train.engine.stop import StopRequest
from train.evaluate.npz import NpzShards
from train.evaluate.sampler import RunSampler


def carry_out(attempt: Attempt[Sampling]) -> None:
    """Carry out an attempt at sampling."""
    config, ranks = attempt.config, attempt.ranks
    with process_group(ranks):
        attempt.note(ranks=ranks.world, versions=versions())
        metrics = attempt.open_metrics()
        out = attempt.run.samples / "images.npz"
        shards = NpzShards(out=out, num=config.num, size=config.batch)
        reported: list[int] = []

        def report(finished: int) -> None:
            event = "saved" if reported else "started"
            reported.append(finished)
            metrics.event(event, **_progress(finished, shards))

        request = draw_set(
            config, shards, ranks, request=attempt.stop_signals.request, report=report
        )
        finish(metrics, request, _progress(reported[-1], shards))
        if request is StopRequest.GO_ON:
            log.info("%s", out)


def draw_set(
    config: Sampling,
    shards: NpzShards,
    ranks: Ranks,
    *,
    request: Callable[[], StopRequest],
    report: Callable[[int], None],
) -> StopRequest:
    """Draw the missing shards and join them. Collective; needs a process group.

    Return `GO_ON` if the file is complete, else the strongest stop request of any rank, which is
    checked before every batch. `report` receives the number of finished shards, at first of those
    found. Raises `ConfigError` if the run cannot be sampled this way.
    """
    sampler = RunSampler(config, device=ranks.device)
    missing = _begin(sampler, shards, rank=ranks.rank)
    report(shards.count - len(missing))
    for begin in range(0, len(missing), ranks.world):
        stop = StopRequest(max_over_ranks(request()))
        if stop is not StopRequest.GO_ON:
            return stop
        batch = missing[begin : begin + ranks.world]
        for shard in batch[ranks.rank : ranks.rank + 1]:
            shards.write(shard, sampler.draw(shards.indices(shard)))
        dist.barrier()
        report(shards.count - len(missing) + begin + len(batch))
    if ranks.rank == 0 and not shards.is_joined():
        shards.join(sampler.labels())
    dist.barrier()
    return StopRequest.GO_ON


def _begin(sampler: RunSampler, shards: NpzShards, *, rank: int) -> list[int]:
    """Load the weights and return the shards to draw, the same on every rank."""
    joined, earlier = from_rank_0((shards.is_joined(), shards.metadata()) if rank == 0 else None)
    if joined:
        if rank == 0:
            shards.remove()
        return []
    metadata = sampler.load(earlier)
    if rank == 0:
        shards.begin(metadata)
    return list(from_rank_0(shards.missing() if rank == 0 else None))


def _progress(finished: int, shards: NpzShards) -> dict[str, int]:
    return {"step": finished, "images": min(shards.num, finished * shards.size)}
