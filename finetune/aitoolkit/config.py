"""Translate a run's config and data set into ai-toolkit's."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.checks.aitoolkit import LAYERS
from configs.checks.captions import fill_trigger
from configs.checks.dataset import image_set
from configs.disk import replace_file
from configs.schema import Finetune
from configs.schema.training import LearningRate
from finetune.native.rng import evaluation_times

# The name of the job in ai-toolkit, and so of its files.
JOB = "lora"
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
    process: dict[str, Any] = {
        "type": "diffusion_trainer",
        "training_folder": str(workspace.output),
        "sqlite_db_path": str(workspace.database),
        "training_seed": attempt_seed(config, start=start, attempt=attempt),
        "logging": {"log_every": 1, "use_ui_logger": True},
        "network": _network(config),
        "save": {
            "dtype": "float32",
            "save_every": config.checkpoint.every,
            "max_step_saves_to_keep": config.checkpoint.keep,
            "push_to_hub": False,
        },
        "datasets": [_dataset(config, workspace.dataset)],
        "train": _training(config, start=start),
        "model": _model(config),
        "sample": _samples(config),
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
    return {
        "type": "lora",
        "linear": lora.rank,
        "linear_alpha": lora.rank,
        "transformer_only": lora.targets != "all",
        "network_kwargs": {} if layers is None else {"only_if_contains": layers},
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
    settings = {
        "steps": train.steps,
        "batch_size": batch,
        "gradient_accumulation": train.global_batch // batch,
        "train_unet": True,
        "train_text_encoder": False,
        "gradient_checkpointing": train.gradient_checkpointing,
        "noise_scheduler": "flowmatch",
        "timestep_type": "sigmoid",
        "optimizer": "adamw",
        "optimizer_params": {"betas": [0.9, 0.999], "weight_decay": 0.01},
        "lr": optimizer.lr,
        "max_grad_norm": 1.0,
        "ema_config": {"use_ema": False},
        "dtype": train.precision,
    }
    # Otherwise it would repeat a step: the metadata of a scheduled save lag by one.
    settings |= _schedule(optimizer) | _validation(config)
    return settings | ({"start_step": start} if start else {})


def _validation(config: Finetune) -> dict[str, Any]:
    """Return its own evaluation of the images held out, at the times of the native engine.

    It evaluates after the first step of a start, and one step after each multiple of its period.
    """
    images, size = image_set(config).held_out, config.data.resolutions[0]
    if not images:
        return {}
    found = {
        "validation_items": [
            {
                "image_path": str(each.image.absolute()),
                "prompt": fill_trigger(each.text(), config.data.trigger),
            }
            for each in images
        ],
        "resolution": size,
        "validate_every_n_steps": validation_period(config),
        "validation_sigmas": evaluation_times(),
    }
    return {"validation_config": found}


def validation_period(config: Finetune) -> int:
    """Return the steps between evaluations of the images held out."""
    return config.validation.every or max(1, config.train.steps - 1)


def _schedule(optimizer: LearningRate) -> dict[str, Any]:
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
    settings: dict[str, Any] = {"name_or_path": flux.folder, "is_flux": True}
    if flux.assistant_lora is not None:
        settings["assistant_lora_path"] = flux.assistant_lora
    return settings


def _samples(config: Finetune) -> dict[str, Any]:
    sample = config.sample
    return {
        "sampler": "flowmatch",
        "format": "png",
        "sample_every": sample.every or 0,
        "width": sample.width,
        "height": sample.height,
        "samples": [
            {"prompt": fill_trigger(prompt, config.data.trigger)} for prompt in sample.prompts
        ],
        "neg": "",
        "seed": sample.seed,
        "walk_seed": True,
        "guidance_scale": sample.guidance,
        "sample_steps": sample.steps,
    }


def _merge(process: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return the process with the keys of the `aitoolkit` section merged in, group by group."""
    merged = copy.deepcopy(process)
    if "arch" in extra.get("model", {}):
        # Otherwise it would load a FLUX.1, and tune only layers of its names.
        del merged["model"]["is_flux"], merged["network"]["network_kwargs"]
    if "qtype" in extra.get("model", {}):
        merged["model"]["quantize"] = True
    if "optimizer" in extra.get("train", {}):
        # Other optimizers have other parameters.
        del merged["train"]["optimizer_params"]
    for name, value in extra.items():
        if name == "datasets":
            merged["datasets"][0] |= value
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] |= value
        else:
            merged[name] = value
    return merged


def lay_out_dataset(config: Finetune, folder: Path) -> None:
    """Fill `folder` with links to images, and with captions whose trigger is filled in.

    ai-toolkit keeps its caches in the folder that it is given, and the data set's own folder may
    be read-only or shared. Calling it again changes nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in image_set(config).training:
        link = folder / file.name
        if not link.is_symlink():
            link.symlink_to(file.image.absolute())
        # ai-toolkit's caches depend on the modification times of captions.
        if not (caption := link.with_suffix(".txt")).is_file():
            replace_file(caption, fill_trigger(file.text(), config.data.trigger) + "\n")
