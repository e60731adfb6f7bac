"""One attempt at drawing many images from a run, for FID: from its folder to its last event.

Piece k holds the images of one batch, whichever rank draws it, so that the images are the same
for any number of ranks, and a kill loses at most the batches under way. Every rank holds the
whole network: one too large for a GPU cannot be sampled here.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch.distributed as dist

from configs.attempt.close import close_attempt
from configs.attempt.open import open_attempt
from configs.errors import ConfigError
from configs.run.folder import RunFolder
from configs.schema.sample import Sampling
from train.engine.attempt import Attempt, finish, run_attempt
from train.engine.distributed import (
    Ranks,
    broadcast_str_before_init,
    from_rank_0,
    max_over_ranks,
    process_group,
    read_ranks,
)
from train.engine.environment import versions
from train.engine.failure import write_error
from train.engine.metrics import log
from train.engine.stop import StopRequest
from train.evaluate.drawing import RunSampler
from train.evaluate.npz_shards import Note, NpzShards


def main(arguments: list[str]) -> int:
    """`python -m train sample RUN [--num N] [--out FILE.npz] [key=value ...]`."""
    parser = argparse.ArgumentParser(
        prog="python -m train sample",
        description="Draw many images from a pretraining run into one .npz, as jobs/sample.sbatch "
        "does; alone or under torchrun. Example: torchrun --standalone --nproc-per-node=2 "
        "-m train sample logs/RUN --num 50000",
    )
    parser.add_argument("run", type=Path, help="pretraining run, or the sampling run to resume")
    parser.add_argument("--num", type=int, help="images; 50000 by default")
    parser.add_argument("--out", type=Path, help="a new .npz file; by default in the run's folder")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="configs schema sample")
    options = parser.parse_intermixed_args(arguments)
    changes = list(options.overrides)
    changes += [f"num={options.num}"] if options.num is not None else []
    changes += [f"out={json.dumps(str(options.out.absolute()))}"] if options.out else []
    ranks = read_ranks()
    folder = broadcast_str_before_init(
        ranks, lambda: str(open_attempt(options.run, changes, kind="sample") or "")
    )
    if not folder:
        return 0
    begun = Path(folder)
    status = attempt(RunFolder(begun.parent.parent), number=int(begun.name))
    return status if ranks.rank else close_attempt(begun, status=status).exit_code


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at sampling; the exit code (0 whenever the run folder is in order)."""
    return run_attempt(run, Sampling, _run, number=number)


def _run(attempt: Attempt[Sampling]) -> None:
    config, ranks = attempt.config, attempt.ranks
    with process_group(ranks):
        attempt.note(ranks=ranks.world, versions=versions())
        metrics = attempt.open_metrics()
        out = Path(config.out) if config.out else attempt.run.samples / "images.npz"
        pieces = NpzShards(out=out, num=config.num, size=config.batch)
        done: list[int] = []

        def report(finished: int) -> None:
            event = "saved" if done else "started"
            done.append(finished)
            metrics.event(event, **_progress(finished, pieces))

        try:
            request = draw_set(
                config, pieces, ranks, request=attempt.stop_signals.request, report=report
            )
        except Exception as error:
            # Before the group ends: other ranks would take the end of this one for the cause.
            write_error(attempt.folder, error, rank=ranks.rank)
            raise
        finish(metrics, request, _progress(done[-1], pieces))
        if request is StopRequest.GO_ON:
            log.info("%s", out)


def draw_set(
    config: Sampling,
    pieces: NpzShards,
    ranks: Ranks,
    *,
    request: Callable[[], StopRequest],
    report: Callable[[int], None],
) -> StopRequest:
    """Draw the pieces that are missing, then join them; all ranks call it, in a process group.

    `GO_ON` once the file is whole; else the strongest wish of any rank, heard before the next
    batch. `report` hears how many pieces there are, first of those found. `ConfigError` where
    the file is there already, or the run cannot be drawn from so.
    """
    drawing = RunSampler(config, device=ranks.device)
    missing = _begin(drawing, pieces, config, rank=ranks.rank)
    report(pieces.count - len(missing))
    for begin in range(0, len(missing), ranks.world):
        heard = StopRequest(max_over_ranks(request()))
        if heard is not StopRequest.GO_ON:
            return heard
        turn = missing[begin : begin + ranks.world]
        for piece in turn[ranks.rank : ranks.rank + 1]:
            pieces.keep(piece, drawing.draw(pieces.numbers(piece)))
        dist.barrier()
        report(pieces.count - len(missing) + begin + len(turn))
    if ranks.rank == 0 and not pieces.is_joined():
        pieces.join(drawing.labels())
    dist.barrier()
    return StopRequest.GO_ON


def _begin(drawing: RunSampler, pieces: NpzShards, config: Sampling, *, rank: int) -> list[int]:
    """The pieces to draw, with the weights to draw them loaded, the same on every rank."""
    joined, begun = cast(
        tuple[bool, Note | None],
        from_rank_0((pieces.is_joined(), pieces.begun()) if rank == 0 else None),
    )
    if begun is not None:
        wanted = drawing.note() | ({"checkpoint": config.step} if config.step else {})
        other = [f"{name} {begun.get(name)}" for name in wanted if begun.get(name) != wanted[name]]
        if other:
            raise ConfigError(
                f"out {pieces.out}: other images were drawn there ({', '.join(other)}); name a "
                "new file"
            )
    if joined:
        if rank == 0:
            pieces.discard()
        return []
    note = drawing.load(begun)
    if rank == 0:
        pieces.begin(note)
    return cast(list[int], from_rank_0(pieces.missing() if rank == 0 else None))


def _progress(finished: int, pieces: NpzShards) -> dict[str, int]:
    return {"step": finished, "images": min(pieces.num, finished * pieces.size)}
