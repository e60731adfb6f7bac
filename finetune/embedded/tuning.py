"""One attempt at a fine-tuning by this engine, from the run's folder to its last event."""

import contextlib
from importlib.metadata import version
from typing import Any

from configs.batch import Division, divide
from configs.run import RunFolder
from configs.schema import Finetune
from finetune.embedded.batches import Batches
from finetune.embedded.loop import Trainer
from finetune.embedded.optimizer import check_optimizer, make_optimizer
from finetune.embedded.preparing import Prepared, prepare
from finetune.libraries import hide_progress_bars
from train.attempt import Attempt, carry_out
from train.checkpoint import Saver, TrainingState, load_newest
from train.clocks import Clocks
from train.dist import process_group
from train.ema import Average
from train.facts import versions
from train.hang import HangWatch
from train.journal import Arrivals, log
from train.soundness import LossScale

PURPOSES = ("setup", "load", "quantise", "cache", "train", "data", "save", "sample", "eval")


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at fine-tuning; 0 whenever the run folder is in order."""
    return carry_out(run, Finetune, _run, number=number)


def _run(attempt: Attempt[Finetune]) -> None:
    config, ranks = attempt.config, attempt.ranks
    check_optimizer(config.optimizer, ranks.device)
    hide_progress_bars()
    clocks = Clocks(ranks.device, purposes=PURPOSES)
    division = divide(config, world=ranks.world)
    with process_group(ranks):
        prepared = prepare(attempt, clocks)
        attempt.note(**_facts(config, division, prepared))
        trainer = _trainer(attempt, division, prepared, clocks)
        with contextlib.closing(trainer.hang):
            wish = trainer.train()
        trainer.conclude(wish)


def _trainer(
    attempt: Attempt[Finetune], division: Division, prepared: Prepared, clocks: Clocks
) -> Trainer:
    """The loop with the newest checkpoint in it; says that the attempt has started."""
    run, config, ranks = attempt.run, attempt.config, attempt.ranks
    wanted, weights, keep = prepared.wanted, prepared.weights, config.checkpoint.keep
    optimizer = make_optimizer(weights, config.optimizer)
    average = Average(weights, decay=config.train.ema_decay, warmup=True)
    scale = LossScale(fp16=False)
    state = TrainingState(
        network=weights, average=average, optimizer=optimizer, scale=scale, clocks=clocks
    )
    resumes = load_newest(run.checkpoints, state)
    journal = attempt.open_journal(tensorboard=config.log.tensorboard)
    journal.event("started", step=state.step, images=state.images)
    if resumes:
        log.info("resumed from step %d", state.step)
    return Trainer(
        config=config,
        division=division,
        ranks=ranks,
        run=run,
        transformer=prepared.transformer,
        weights=weights,
        optimizer=optimizer,
        average=average,
        state=state,
        saver=Saver(run.checkpoints, keep=keep, is_superseded=attempt.is_superseded),
        clocks=clocks,
        journal=journal,
        arrivals=Arrivals(attempt.folder, rank=ranks.rank),
        watch=attempt.watch,
        batches=Batches(prepared.cache, wanted, config, division=division, rank=ranks.rank),
        judging=prepared.judging,
        hang=HangWatch(attempt.folder, ranks=ranks, least_s=config.train.hang_s),
    )


def _facts(config: Finetune, division: Division, prepared: Prepared) -> dict[str, Any]:
    """What the manifest tells of this attempt."""
    libraries = ("diffusers", "peft", "transformers", "torchao")
    compute = {"fp32": "float32", "bf16": "bfloat16"}[config.train.precision]
    base = (p for name, p in prepared.transformer.named_parameters() if ".lora_" not in name)
    return {
        "engine": "embedded",
        "ranks": division.world,
        "micro_batch": division.micro_batch,
        "accumulation": division.accumulation,
        "images_in_set": len(prepared.wanted.images),
        "parameters": sum(parameter.numel() for parameter in prepared.weights.parameters()),
        "base_parameters": sum(parameter.numel() for parameter in base),
        "dtypes": {
            "parameters": "float32",
            "base": compute if config.flux.quantise == "none" else config.flux.quantise,
            "gradients": "float32",
            "optimizer": "uint8" if config.optimizer.kind == "adamw8bit" else "float32",
            "reduction": "float32",
            "compute": compute,
        },
        "versions": versions() | {name: version(name) for name in libraries},
    }
