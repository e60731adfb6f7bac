"""What an attempt makes ready before its first step: the cache, the model, what judges it."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from diffusers import FluxTransformer2DModel

from configs.checks.prompts import prompts_of
from configs.schema import Finetune
from finetune.native.base_model import DTYPES, load_transformer, place
from finetune.native.cache import Cache, CacheRequest
from finetune.native.encoders import fill, fingerprint, load_vae
from finetune.native.judging import LoraEvaluation, trained_with
from finetune.native.lora import Weights, add_assistant, add_learned, use
from finetune.native.pipeline import ImagePipeline
from finetune.native.strata import FixedNoiseLoss
from train.engine.attempt import Attempt
from train.engine.clocks import Clocks
from train.engine.distributed import Ranks
from train.engine.metrics import log


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The images and prompts, what was made of them, and the transformer with its LoRA."""

    wanted: CacheRequest
    cache: Cache
    transformer: FluxTransformer2DModel
    weights: Weights
    judging: LoraEvaluation


def prepare(attempt: Attempt[Finetune], clocks: Clocks) -> Prepared:
    """Cache, load and quantise, each on its own clock; every rank must ask."""
    config, ranks = attempt.config, attempt.ranks
    wanted = CacheRequest(config, prompts_of(config.sample.prompts, config.sample.prompts_file))
    cache = _cache(attempt, wanted, clocks)
    transformer, weights = _model(config, ranks, clocks)
    folder, precision = _folder(config), config.train.precision
    vae = load_vae(folder, ranks.device, DTYPES[precision])
    judging = LoraEvaluation(
        config=config,
        run=attempt.run,
        ranks=ranks,
        cache=cache,
        prompts=wanted.prompts,
        strata=FixedNoiseLoss(transformer, cache, wanted.images, config, ranks=ranks),
        painter=ImagePipeline(transformer, vae, folder, precision),
    )
    clocks.lap("load", drain=True)
    return Prepared(
        wanted=wanted, cache=cache, transformer=transformer, weights=weights, judging=judging
    )


def _cache(attempt: Attempt[Finetune], wanted: CacheRequest, clocks: Clocks) -> Cache:
    """The latents and embeddings of all that is wanted; ranks share the making."""
    config, ranks = attempt.config, attempt.ranks
    folder = _folder(config)
    settings = {
        "variant": config.flux.variant,
        "precision": config.train.precision,
        "resolutions": config.data.resolutions,
        "bucket": config.data.bucket,
        "model": fingerprint(folder),
    }
    cache = Cache(attempt.run.path / "cache", settings)
    missing = cache.missing(wanted.all())
    clocks.lap("setup")
    # All ranks have looked before any of them writes.
    dist.barrier()
    mine = missing[ranks.rank :: ranks.world]
    fill(cache, mine, config, folder=folder, device=ranks.device)
    if missing:
        log.info("cached %d images and texts", len(missing))
    dist.barrier()
    cache.await_all(missing)
    if ranks.device.type == "cuda":
        # The text encoders are gone: their memory is no part of what training needs.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ranks.device)
    clocks.lap("cache", drain=True)
    return cache


def _model(
    config: Finetune, ranks: Ranks, clocks: Clocks
) -> tuple[FluxTransformer2DModel, Weights]:
    transformer = load_transformer(_folder(config), DTYPES[config.train.precision])
    clocks.lap("load")
    quantise = config.flux.quantise
    place(transformer, ranks.device, quantise=quantise)
    clocks.lap("load" if quantise == "none" else "quantise", drain=True)
    if config.train.gradient_checkpointing:
        transformer.enable_gradient_checkpointing()
    weights = add_learned(transformer, config.lora, seed=config.seed)
    if config.flux.assistant_lora:
        add_assistant(transformer, Path(config.flux.assistant_lora))
    use(transformer, *trained_with(config))
    return transformer, weights


def _folder(config: Finetune) -> Path:
    assert config.flux.folder is not None
    return Path(config.flux.folder)
