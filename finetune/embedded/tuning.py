"""One attempt at a fine-tuning by this engine, from the run's folder to its last event."""

import contextlib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch.distributed as dist
from diffusers import FluxTransformer2DModel

from configs.batch import Division, divide
from configs.prompts import prompts_of
from configs.run import RunFolder
from configs.schema import Finetune
from finetune.embedded.adapters import Weights, add_assistant, add_learned, use
from finetune.embedded.base import DTYPES, load_transformer, quantise
from finetune.embedded.batches import Batches
from finetune.embedded.cache import Cache, Wanted
from finetune.embedded.encoding import fill, fingerprint, load_vae
from finetune.embedded.judging import Judging, trained_with
from finetune.embedded.libraries import hide_progress_bars
from finetune.embedded.loop import Trainer
from finetune.embedded.optimizer import check_optimizer, make_optimizer
from finetune.embedded.painter import Painter
from finetune.embedded.strata import Strata
from train.attempt import carry_out
from train.checkpoint import Saver, TrainingState, load_newest
from train.clocks import Clocks
from train.dist import Ranks, process_group
from train.ema import Average
from train.facts import placement, versions
from train.hang import HangWatch
from train.journal import Arrivals, Journal, log
from train.soundness import LossScale
from train.stopping import Watch, Wish

PURPOSES = ("setup", "load", "quantise", "cache", "train", "data", "save", "sample", "eval")
_EVENTS = {Wish.GO_ON: "done", Wish.PAUSE: "paused", Wish.STOP: "stopped"}


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at fine-tuning; 0 whenever the run folder is in order."""
    return carry_out(run, Finetune, _run, number=number)


def _run(run: RunFolder, config: Finetune, ranks: Ranks, attempt: int) -> None:
    check_optimizer(config.optimizer, ranks.device)
    hide_progress_bars()
    clocks = Clocks(ranks.device, purposes=PURPOSES)
    watch = Watch(run, attempt=attempt)
    division = divide(config, world=ranks.world)
    with process_group(ranks):
        trainer = _trainer(run, config, ranks, division, clocks, watch, attempt)
        with contextlib.closing(trainer.hang):
            wish = trainer.train()
        if wish is Wish.LEAVE:
            log.warning("a newer attempt has begun: leaving without a save")
        else:
            at = {"step": trainer.state.step, "images": trainer.state.images}
            trainer.journal.event(_EVENTS[wish], **at, **clocks.fields())
        trainer.journal.close()
        trainer.arrivals.close()


@dataclass(frozen=True, kw_only=True)
class Model:
    """The transformer with the LoRA beside its weights."""

    transformer: FluxTransformer2DModel
    weights: Weights


def _trainer(
    run: RunFolder,
    config: Finetune,
    ranks: Ranks,
    division: Division,
    clocks: Clocks,
    watch: Watch,
    attempt: int,
) -> Trainer:
    """Everything that training needs, with the newest checkpoint in it."""
    wanted = Wanted(config, prompts_of(config.sample.prompts, config.sample.prompts_file))
    cache = _cache(run, config, wanted, ranks, clocks)
    model = _model(config, ranks, clocks)
    weights = model.weights
    optimizer = make_optimizer(weights, config.optimizer)
    average = Average(weights, decay=config.train.ema_decay, warmup=True)
    state = TrainingState(
        network=weights,
        average=average,
        optimizer=optimizer,
        scale=LossScale(fp16=False),
        clocks=clocks,
    )
    resumes = load_newest(run.checkpoints, state)
    places = placement(ranks)
    journal = Journal(run, attempt=attempt, rank=ranks.rank, tensorboard=config.log.tensorboard)
    if places is not None:
        run.note(attempt, placement=places, **_facts(config, division, model, len(wanted.images)))
    journal.event("started", step=state.step, images=state.images)
    if resumes:
        log.info("resumed from step %d", state.step)
    return Trainer(
        config=config,
        division=division,
        ranks=ranks,
        run=run,
        transformer=model.transformer,
        weights=weights,
        optimizer=optimizer,
        average=average,
        state=state,
        saver=Saver(
            run.checkpoints,
            keep=config.checkpoint.keep,
            is_superseded=run.attempt(attempt + 1).exists,
        ),
        clocks=clocks,
        journal=journal,
        arrivals=Arrivals(run.attempt(attempt), rank=ranks.rank),
        watch=watch,
        batches=Batches(
            cache,
            wanted.images,
            wanted.no_caption,
            config,
            division=division,
            rank=ranks.rank,
        ),
        judging=_judging(run, config, ranks, cache, wanted, model),
        hang=HangWatch(run.attempt(attempt), ranks=ranks, least_s=config.train.hang_s),
    )


def _cache(run: RunFolder, config: Finetune, wanted: Wanted, ranks: Ranks, clocks: Clocks) -> Cache:
    """The latents and embeddings of all that is wanted; ranks share the making."""
    folder = _folder(config)
    settings = {
        "variant": config.flux.variant,
        "precision": config.train.precision,
        "resolutions": config.data.resolutions,
        "bucket": config.data.bucket,
        "model": fingerprint(folder),
    }
    cache = Cache(run.path / "cache", settings)
    missing = cache.missing(wanted.all())
    clocks.lap("setup")
    # All ranks have looked before any of them writes.
    dist.barrier()
    fill(
        cache,
        missing[ranks.rank :: ranks.world],
        folder=folder,
        variant=config.flux.variant,
        data=config.data,
        device=ranks.device,
        dtype=DTYPES[config.train.precision],
    )
    if missing:
        log.info("cached %d images and texts", len(missing))
    dist.barrier()
    clocks.lap("cache", drain=True)
    return cache


def _model(config: Finetune, ranks: Ranks, clocks: Clocks) -> Model:
    transformer = load_transformer(
        _folder(config), device=ranks.device, dtype=DTYPES[config.train.precision]
    )
    clocks.lap("load", drain=True)
    quantise(transformer, config.flux.quantise)
    clocks.lap("quantise", drain=True)
    if config.train.gradient_checkpointing:
        transformer.enable_gradient_checkpointing()
    weights = add_learned(transformer, config.lora, seed=config.seed)
    if config.flux.assistant_lora:
        add_assistant(transformer, Path(config.flux.assistant_lora))
    use(transformer, *trained_with(config))
    clocks.lap("load", drain=True)
    return Model(transformer=transformer, weights=weights)


def _judging(
    run: RunFolder, config: Finetune, ranks: Ranks, cache: Cache, wanted: Wanted, model: Model
) -> Judging:
    folder, precision = _folder(config), config.train.precision
    vae = load_vae(folder, ranks.device, DTYPES[precision])
    return Judging(
        config=config,
        run=run,
        ranks=ranks,
        cache=cache,
        prompts=wanted.prompts,
        strata=Strata(model.transformer, cache, wanted.images, config, ranks=ranks),
        painter=Painter(model.transformer, vae, folder, precision),
    )


def _folder(config: Finetune) -> Path:
    assert config.flux.folder is not None
    return Path(config.flux.folder)


def _facts(config: Finetune, division: Division, model: Model, images: int) -> dict[str, Any]:
    """What the manifest tells of this attempt."""
    libraries = ("diffusers", "peft", "transformers", "torchao")
    lower = config.train.precision.replace("fp32", "float32").replace("bf16", "bfloat16")
    held = lower if config.flux.quantise == "none" else config.flux.quantise
    eight = config.optimizer.kind == "adamw8bit"
    return {
        "engine": "embedded",
        "ranks": division.world,
        "micro_batch": division.micro_batch,
        "accumulation": division.accumulation,
        "images_in_set": images,
        "parameters": sum(parameter.numel() for parameter in model.weights.parameters()),
        "base_parameters": sum(
            parameter.numel()
            for name, parameter in model.transformer.named_parameters()
            if ".lora_" not in name
        ),
        "dtypes": {
            "parameters": "float32",
            "base": held,
            "gradients": "float32",
            "optimizer": "uint8" if eight else "float32",
            "reduction": "float32",
            "compute": lower,
        },
        "versions": versions() | {name: version(name) for name in libraries},
    }
