"""Our config as ai-toolkit's: what each key of ours is there, and what is theirs alone."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.schema import Finetune

# The name of its job, and so of its files.
JOB = "lora"
# Layers of Flux by what their dotted names hold; ai-toolkit would tune adaLN's as well.
_TARGETS = {
    "attention": [".attn."],
    "attention+mlp": [".attn.", ".ff.", ".ff_context.", ".proj_mlp", ".proj_out"],
}
_QTYPES = {"int8": "qint8", "float8": "qfloat8"}
# Seeds of attempts lie so far apart that no two runs of neighbouring seeds share one soon.
_SEED_STRIDE = 1_000_003


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where an attempt at it keeps things: `output` for its results, `database` to steer it."""

    output: Path
    database: Path
    dataset: Path


def their_config(
    config: Finetune,
    desk: Workspace,
    *,
    prompts: list[str],
    start: int,
    attempt: int,
) -> dict[str, Any]:
    """The config of ai-toolkit for an attempt that goes on after `start` steps.

    `prompts` and the captions in the data set have their trigger word filled in already: it would
    put the word in front of captions that lack it.
    """
    process: dict[str, Any] = {
        "type": "diffusion_trainer",
        "training_folder": str(desk.output),
        "sqlite_db_path": str(desk.database),
        "training_seed": attempt_seed(config, start=start, attempt=attempt),
        "logging": {"log_every": 1, "use_ui_logger": True},
        "network": _network(config),
        "save": {
            "dtype": "float16",
            "save_every": config.checkpoint.every,
            "max_step_saves_to_keep": config.checkpoint.keep,
            "push_to_hub": False,
        },
        "datasets": [_dataset(config, desk.dataset)],
        "train": _training(config, start=start),
        "model": _model(config),
        "sample": _samples(config, prompts),
    }
    return {
        "job": "extension",
        "config": {"name": JOB, "process": [_with_theirs(process, config.aitoolkit)]},
    }


def attempt_seed(config: Finetune, *, start: int, attempt: int) -> int:
    """The run's seed for its first step; after a resume another, or it would replay its noise."""
    if start == 0:
        return config.seed
    return (config.seed + _SEED_STRIDE * attempt) % 2**31


def _network(config: Finetune) -> dict[str, Any]:
    return {
        "type": "lora",
        "linear": config.lora.rank,
        "linear_alpha": config.lora.rank,
        "network_kwargs": {"only_if_contains": _TARGETS[config.lora.targets]},
    }


def _dataset(config: Finetune, folder: Path) -> dict[str, Any]:
    return {
        "folder_path": str(folder),
        "caption_ext": "txt",
        "caption_dropout_rate": config.data.caption_dropout,
        "cache_latents_to_disk": True,
        "resolution": list(config.data.resolutions),
        "bucket_tolerance": config.data.bucket,
    }


def _training(config: Finetune, *, start: int) -> dict[str, Any]:
    train, optimizer = config.train, config.optimizer
    batch = train.micro_batch or train.global_batch
    ema = {"use_ema": train.ema_decay is not None, "ema_decay": train.ema_decay or 0.0}
    theirs = {
        "steps": train.steps,
        "batch_size": batch,
        "gradient_accumulation": train.global_batch // batch,
        "train_unet": True,
        "train_text_encoder": False,
        "gradient_checkpointing": train.gradient_checkpointing,
        "noise_scheduler": "flowmatch",
        "timestep_type": train.timesteps,
        "optimizer": optimizer.kind,
        "optimizer_params": {
            "betas": [optimizer.beta1, optimizer.beta2],
            "weight_decay": optimizer.weight_decay,
        },
        "lr": optimizer.lr,
        "max_grad_norm": optimizer.clip,
        "ema_config": ema,
        "dtype": train.precision,
    }
    # Of a scheduled save it would do the last step again: its metadata lag by one.
    return theirs | ({"start_step": start} if start else {})


def _model(config: Finetune) -> dict[str, Any]:
    flux = config.flux
    theirs: dict[str, Any] = {
        "name_or_path": flux.folder,
        "is_flux": True,
        "quantize": flux.quantise != "none",
    }
    if flux.quantise != "none":
        theirs["qtype"] = _QTYPES[flux.quantise]
    if flux.assistant_lora is not None:
        theirs["assistant_lora_path"] = flux.assistant_lora
    return theirs


def _samples(config: Finetune, prompts: list[str]) -> dict[str, Any]:
    sample = config.sample
    return {
        "sampler": "flowmatch",
        "format": "png",
        "sample_every": sample.every or 0,
        "width": sample.width,
        "height": sample.height,
        "prompts": prompts,
        "neg": "",
        "seed": sample.seed,
        "walk_seed": True,
        "guidance_scale": sample.guidance,
        "sample_steps": sample.steps,
    }


def _with_theirs(process: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The process with the keys that are ai-toolkit's alone, by its groups."""
    merged = copy.deepcopy(process)
    for name, value in theirs.items():
        if name == "datasets":
            merged["datasets"][0] |= value
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] |= value
        else:
            merged[name] = value
    return merged
