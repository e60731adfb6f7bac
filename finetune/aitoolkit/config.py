"""Translate a run's config and data set into those of ai-toolkit."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.checks.aitoolkit import LAYERS
from configs.checks.captions import captioned_files, fill_trigger, read_prompts, read_text
from configs.disk import replace_file
from configs.schema import Finetune
from configs.schema.finetune import LoraOptimizer

# The name of the job in ai-toolkit, and so of its files.
JOB = "lora"
_QTYPES = {"int8": "qint8", "float8": "qfloat8"}
# Large, so that resumed runs with neighbouring seeds do not share a seed.
_SEED_STRIDE = 1_000_003


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The paths of one attempt: results, the database that controls it, and the images."""

    output: Path
    database: Path
    dataset: Path


def toolkit_config(
    config: Finetune, workspace: Workspace, *, start: int, attempt: int
) -> dict[str, Any]:
    """Return the config of ai-toolkit for an attempt that resumes after `start` steps.

    The trigger word is filled into prompts and captions here, because ai-toolkit would prepend
    it to captions that lack it.
    """
    texts = read_prompts(config.sample.prompts, config.sample.prompts_file)
    prompts = [fill_trigger(text, config.data.trigger) for text in texts]
    process: dict[str, Any] = {
        "type": "diffusion_trainer",
        "training_folder": str(workspace.output),
        "sqlite_db_path": str(workspace.database),
        "training_seed": attempt_seed(config, start=start, attempt=attempt),
        "logging": {"log_every": 1, "use_ui_logger": True},
        "network": _network(config),
        "save": {
            "dtype": config.checkpoint.dtype,
            "save_every": config.checkpoint.every,
            "max_step_saves_to_keep": config.checkpoint.keep,
            "push_to_hub": False,
        },
        "datasets": [_dataset(config, workspace.dataset)],
        "train": _training(config, start=start),
        "model": _model(config),
        "sample": _samples(config, prompts),
    }
    return {
        "job": "extension",
        "config": {"name": JOB, "process": [_merge(process, config.aitoolkit)]},
    }


def attempt_seed(config: Finetune, *, start: int, attempt: int) -> int:
    """Return the run's seed; after a resume another one, or the same noise would be drawn again."""
    if start == 0:
        return config.seed
    return (config.seed + _SEED_STRIDE * attempt) % 2**31


def _network(config: Finetune) -> dict[str, Any]:
    lora, layers = config.lora, LAYERS[config.lora.targets]
    settings: dict[str, Any] = {
        "type": lora.kind,
        "linear": lora.rank,
        "linear_alpha": lora.rank,
        "transformer_only": lora.targets != "all",
        "network_kwargs": {} if layers is None else {"only_if_contains": layers},
    }
    if lora.kind == "lokr":
        settings |= {"lokr_full_rank": False, "lokr_factor": lora.factor or -1}
    return settings | ({"dropout": lora.dropout} if lora.dropout else {})


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
    settings = {
        "steps": train.steps,
        "batch_size": batch,
        "gradient_accumulation": train.global_batch // batch,
        "train_unet": True,
        "train_text_encoder": False,
        "gradient_checkpointing": train.gradient_checkpointing,
        "noise_scheduler": "flowmatch",
        "timestep_type": train.timesteps,
        "optimizer": optimizer.kind,
        "optimizer_params": _optimizer(optimizer),
        "lr": optimizer.lr,
        "max_grad_norm": optimizer.clip,
        "ema_config": ema,
        "dtype": train.precision,
    }
    # Otherwise it would repeat a step: the metadata of a scheduled save lag by one.
    return settings | _schedule(optimizer) | ({"start_step": start} if start else {})


def _optimizer(optimizer: LoraOptimizer) -> dict[str, Any]:
    settings = {
        "betas": [optimizer.beta1, optimizer.beta2],
        "weight_decay": optimizer.weight_decay,
    }
    if optimizer.kind == "prodigy":
        settings["safeguard_warmup"] = optimizer.warmup_steps > 0
    return settings


def _schedule(optimizer: LoraOptimizer) -> dict[str, Any]:
    """Return the schedule; `check_supported` refuses those that ai-toolkit does not have."""
    name, settings = "constant", dict[str, float]()
    if optimizer.warmup_steps:
        name, settings = "constant_with_warmup", {"num_warmup_steps": optimizer.warmup_steps}
    elif optimizer.decay and optimizer.decay_shape == "cosine":
        name, settings = "cosine", {"eta_min": optimizer.lr * optimizer.decay_to}
    elif optimizer.decay:
        name, settings = "linear", {"start_factor": 1.0, "end_factor": optimizer.decay_to}
    return {"lr_scheduler": name, "lr_scheduler_params": settings}


def _model(config: Finetune) -> dict[str, Any]:
    flux = config.flux
    settings: dict[str, Any] = {
        "name_or_path": flux.folder,
        "is_flux": True,
        "quantize": flux.quantise != "none",
    }
    if flux.quantise != "none":
        settings["qtype"] = _QTYPES[flux.quantise]
    if flux.assistant_lora is not None:
        settings["assistant_lora_path"] = flux.assistant_lora
    return settings


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


def _merge(process: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return the process with the keys of the `aitoolkit` section merged in, group by group."""
    merged = copy.deepcopy(process)
    for name, value in extra.items():
        if name == "datasets":
            merged["datasets"][0] |= value
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] |= value
        else:
            merged[name] = value
    return merged


def lay_out_dataset(config: Finetune, folder: Path) -> None:
    """Fill `folder` with links to the images and with captions whose trigger is filled in.

    ai-toolkit keeps its caches in the folder that it is given, and the data set's own folder may
    be read-only or shared. Calling it again changes nothing.
    """
    assert config.data.folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    for pair in captioned_files(Path(config.data.folder)):
        link = folder / pair.image.name
        if not link.is_symlink():
            link.symlink_to(pair.image.absolute())
        caption = fill_trigger(read_text(pair.caption), config.data.trigger)
        # ai-toolkit's caches depend on the modification times of captions.
        if not (folder / pair.caption.name).is_file():
            replace_file(folder / pair.caption.name, caption + "\n")
