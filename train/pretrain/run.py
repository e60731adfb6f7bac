"""One attempt at a pretraining run: build everything, resume, and run the loop."""

import contextlib
from dataclasses import replace
from pathlib import Path

from configs.checks.batch import BatchLayout, divide
from configs.schema import Pretrain
from train.data.catalog import open_images
from train.data.loader import microbatches
from train.engine.attempt import Attempt, begin_training
from train.engine.checkpoint import (
    CheckpointSaver,
    CheckpointState,
    agree_on_newest,
    load_checkpoint,
    refuse_damaged,
)
from train.engine.clocks import Clocks
from train.engine.distributed import data_rank, process_group
from train.engine.loop import Loop
from train.parts import Pretraining, make_parts
from train.pretrain.facts import facts
from train.pretrain.micro_batch import tuned_micro_batch
from train.pretrain.step import PretrainStep
from train.pretrain.train_state import TrainState, make_train_state, with_compile_resolved


def carry_out(attempt: Attempt[Pretrain]) -> None:
    """Carry out an attempt at pretraining."""
    config, ranks = attempt.config, attempt.ranks
    clocks = Clocks(ranks.device)
    tuned = tuned_micro_batch(attempt.run, config, ranks, attempt.number)
    layout = divide(config, world=ranks.world, tuned=tuned)
    source, images = open_images(config)
    with process_group(ranks):
        config = with_compile_resolved(attempt.run, config, ranks)
        attempt = replace(attempt, config=config)
        train_state, state = _load_newest(attempt, layout, clocks)
        attempt.note(**facts(config, layout, train_state.network))
        context = begin_training(attempt, layout=layout, state=state, clocks=clocks)
        parts = make_parts(
            Pretraining(context=context, train_state=train_state, source=source, images=images)
        )
        batches = microbatches(
            images,
            config,
            layout=layout,
            rank=data_rank(ranks, layout),
            images=state.images,
            pin=ranks.device.type == "cuda",
        )
        saver = CheckpointSaver(
            attempt.run.checkpoints,
            keep=config.checkpoint.keep,
            asynchronous=config.checkpoint.asynchronous,
            is_superseded=attempt.is_superseded,
        )
        with contextlib.closing(batches):
            steps = PretrainStep(
                context=context, train_state=train_state, batches=batches, parts=parts
            )
            request = Loop(context=context, steps=steps, parts=parts, saver=saver).train()
        context.finish(request)


def _load_newest(
    attempt: Attempt[Pretrain], layout: BatchLayout, clocks: Clocks
) -> tuple[TrainState, CheckpointState]:
    """Return the state at the newest checkpoint, else the trunk's, else before the first step."""
    checkpoints, trunk = attempt.run.checkpoints, attempt.config.train.branch_from
    newest = agree_on_newest(checkpoints)
    origin = checkpoints / newest if newest else trunk and Path(trunk)
    if origin and not newest:
        refuse_damaged(origin)
    train_state = make_train_state(
        attempt.config, layout=layout, ranks=attempt.ranks, resumes=origin is not None
    )
    state = train_state.checkpoint_state(clocks)
    if origin:
        load_checkpoint(origin, state)
    return train_state, state
