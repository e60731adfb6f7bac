"""One attempt at a fine-tuning by this engine, from the run's folder to its last event."""

from importlib.metadata import version
from typing import Any

from configs.checks.batch import BatchLayout, divide
from configs.run.folder import RunFolder
from configs.schema import Finetune
from configs.schema.training import Profile
from finetune.libraries import hide_progress_bars
from finetune.native.data import Batches
from finetune.native.evaluation import LoraEvaluator
from finetune.native.optimizer import check_optimizer, make_optimizer
from finetune.native.preparing import Prepared, prepare
from finetune.native.saving import LoraSaver
from finetune.native.step import LoraStep
from train.engine.attempt import Attempt, carry_out
from train.engine.checkpoint import TrainingState, load_newest
from train.engine.clocks import Clocks
from train.engine.context import begin_training
from train.engine.distributed import process_group
from train.engine.ema import EMA
from train.engine.environment import versions
from train.engine.loop import Loop
from train.engine.numerics import LossScaler
from train.engine.profiler import ProfileWindow

PURPOSES = ("setup", "load", "quantise", "cache", "train", "data", "save", "sample", "eval")


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at fine-tuning; 0 whenever the run folder is in order."""
    return carry_out(run, Finetune, _run, number=number)


def _run(attempt: Attempt[Finetune]) -> None:
    config, ranks = attempt.config, attempt.ranks
    check_optimizer(config.optimizer, ranks.device)
    hide_progress_bars()
    clocks = Clocks(ranks.device, purposes=PURPOSES)
    layout = divide(config, world=ranks.world)
    with process_group(ranks):
        prepared = prepare(attempt, clocks)
        attempt.note(**_facts(config, layout, prepared))
        loop = _loop(attempt, layout, prepared, clocks)
        loop.context.conclude(loop.train())


def _loop(
    attempt: Attempt[Finetune], layout: BatchLayout, prepared: Prepared, clocks: Clocks
) -> Loop[Finetune]:
    """The loop with the newest checkpoint in it."""
    config, ranks, weights = attempt.config, attempt.ranks, prepared.weights
    optimizer = make_optimizer(weights, config.optimizer)
    average = EMA(weights, decay=config.train.ema_decay, warmup=True)
    scale = LossScaler(fp16=False)
    state = TrainingState(
        network=weights, average=average, optimizer=optimizer, scale=scale, clocks=clocks
    )
    load_newest(attempt.run.checkpoints, state)
    context = begin_training(attempt, layout=layout, state=state, clocks=clocks)
    evaluator = LoraEvaluator(context=context, average=average, judging=prepared.judging)
    steps = LoraStep(
        context=context,
        transformer=prepared.transformer,
        weights=weights,
        optimizer=optimizer,
        average=average,
        batches=Batches(prepared.cache, prepared.wanted, config, layout=layout, rank=ranks.rank),
        evaluator=evaluator,
    )
    # No step of a tuning is profiled.
    window = ProfileWindow(
        Profile(), attempt.run.profile, rank=ranks.rank, device=ranks.device, clocks=clocks
    )
    saver = LoraSaver(attempt, weights, average)
    return Loop(context=context, steps=steps, evaluator=evaluator, saver=saver, window=window)


def _facts(config: Finetune, layout: BatchLayout, prepared: Prepared) -> dict[str, Any]:
    """What the manifest tells of this attempt."""
    libraries = ("diffusers", "peft", "transformers", "torchao")
    compute = {"fp32": "float32", "bf16": "bfloat16"}[config.train.precision]
    base = (p for name, p in prepared.transformer.named_parameters() if ".lora_" not in name)
    return {
        "engine": "embedded",
        "ranks": layout.world,
        "micro_batch": layout.micro_batch,
        "accumulation": layout.accumulation,
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
