"""The keys that ai-toolkit knows: it silently ignores any other, so those are refused.

They are read from its source if `AI_TOOLKIT` names its folder. Otherwise they come from
configs/checks/aitoolkit-keys.yaml, for the version that `env/create.sh ai-toolkit` installs.
"""

import ast
import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.yaml12 import parse_yaml

Known = Mapping[str, frozenset[str]]

_SHIPPED = Path(__file__).with_name("aitoolkit-keys.yaml")
_CLASSES = "toolkit/config_modules.py"
# The files in which a process reads the keys of its config; GROUPS: the class of each group.
_PROCESS = (
    "jobs/process/BaseProcess.py",
    "jobs/process/BaseTrainProcess.py",
    "jobs/process/BaseSDTrainProcess.py",
    "extensions_built_in/sd_trainer/SDTrainer.py",
    "extensions_built_in/sd_trainer/DiffusionTrainer.py",
)
GROUPS = {
    "adapter": "AdapterConfig",
    "datasets": "DatasetConfig",
    "embedding": "EmbeddingConfig",
    "first_sample": "SampleConfig",
    "guidance": "GuidanceConfig",
    "logging": "LoggingConfig",
    "model": "ModelConfig",
    "network": "NetworkConfig",
    "sample": "SampleConfig",
    "save": "SaveConfig",
    "train": "TrainConfig",
}
# Keys of ai-toolkit that ditbench sets itself, and the key of ours to set instead.
TAKEN = {
    "datasets.bucket_tolerance": "data.bucket",
    "datasets.cache_latents_to_disk": "nothing: latents are always cached",
    "datasets.caption_dropout_rate": "data.caption_dropout",
    "datasets.caption_ext": "nothing: captions end in .txt",
    "datasets.folder_path": "data.folder",
    "datasets.resolution": "data.resolutions",
    "log_dir": "log.tensorboard",
    "logging.log_every": "log.every",
    "logging.use_ui_logger": "nothing: losses are read from it",
    "model.assistant_lora_path": "flux.assistant_lora",
    "model.dtype": "train.precision",
    "model.is_flux": "nothing: it is always Flux",
    "model.name_or_path": "flux.folder",
    "model.qtype": "flux.quantise",
    "model.quantize": "flux.quantise",
    "name": "nothing: the run names it",
    "network.linear": "lora.rank",
    "network.linear_alpha": "lora.alpha",
    "network.network_kwargs": "lora.targets",
    "network.rank": "lora.rank",
    "network.type": "nothing: it is always a LoRA",
    "sample.format": "nothing: samples are PNG",
    "sample.guidance_scale": "sample.guidance",
    "sample.height": "sample.height",
    "sample.prompts": "sample.prompts",
    "sample.sample_every": "sample.every",
    "sample.sample_steps": "sample.steps",
    "sample.sampler": "nothing: flow matching fixes it",
    "sample.samples": "sample.prompts",
    "sample.seed": "sample.seed",
    "sample.walk_seed": "nothing: prompt i has the seed sample.seed + i",
    "sample.width": "sample.width",
    "save.max_step_saves_to_keep": "checkpoint.keep",
    "save.push_to_hub": "nothing: runs stay on local disk",
    "save.save_every": "checkpoint.every",
    "save.save_format": "nothing: a LoRA is one safetensors file",
    "sqlite_db_path": "nothing: ditbench monitors the run through it",
    "train.batch_size": "train.micro_batch",
    "train.disable_sampling": "sample.every",
    "train.dtype": "train.precision",
    "train.ema_config": "train.ema_decay",
    "train.gradient_accumulation": "train.global_batch",
    "train.gradient_accumulation_steps": "train.global_batch",
    "train.gradient_checkpointing": "train.gradient_checkpointing",
    "train.lr": "optimizer.lr",
    "train.max_grad_norm": "optimizer.clip",
    "train.merge_network_on_save": "nothing: a resume reads the LoRA",
    "train.noise_scheduler": "nothing: flow matching fixes it",
    "train.optimizer": "optimizer.kind",
    "train.optimizer_params": "optimizer.beta1, optimizer.beta2 and optimizer.weight_decay",
    "train.start_step": "nothing: the checkpoint decides",
    "train.steps": "train.steps",
    "train.timestep_type": "train.timesteps",
    "train.train_text_encoder": "nothing: only the transformer is trained",
    "train.train_unet": "nothing: the transformer is always trained",
    "training_folder": "nothing: it is the run folder",
    "training_seed": "seed",
    "trigger_word": "data.trigger",
}  # fmt: skip


def check_keys(passed: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for keys that ai-toolkit does not know, or that a key of ours sets."""
    known = known_keys()
    for name in _names(passed):
        if name in TAKEN:
            raise ConfigError(f"aitoolkit.{name}: remove it and set {TAKEN[name]}")
        group, _, key = name.rpartition(".")
        if key not in known.get(group, frozenset()):
            raise ConfigError(_unknown(name, group, known))


def known_keys() -> Known:
    """Return the keys by group (top level: "") of the installed ai-toolkit, or of the list."""
    folder = os.environ.get("AI_TOOLKIT")
    if folder and (Path(folder) / _CLASSES).is_file():
        return read_keys(Path(folder))
    listed = parse_yaml(_SHIPPED.read_text(encoding="utf-8"), source=str(_SHIPPED))
    return {group: frozenset(names) for group, names in listed.items()}


def read_keys(folder: Path) -> Known:
    """Return the keys that the source of ai-toolkit in `folder` reads; none of it is executed."""
    classes = {
        node.name: node
        for node in ast.walk(_tree(folder / _CLASSES))
        if isinstance(node, ast.ClassDef)
    }
    found = {
        group: frozenset(_arguments(classes[name], "kwargs", ("get", "pop")))
        for group, name in GROUPS.items()
        if name in classes
    }
    process = {
        key
        for file in _PROCESS
        for key in (
            *_arguments(_tree(folder / file), "self", ("get_conf",)),
            *_arguments(_tree(folder / file), "self.config", ("get",)),
        )
    }
    return {"": frozenset(process), **found}


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}); AI_TOOLKIT must name a complete checkout: "
            "env/create.sh ai-toolkit creates one"
        ) from None


def _arguments(tree: ast.AST, owner: str, methods: tuple[str, ...]) -> Iterator[str]:
    """Yield each "name" of the calls `owner.method("name", ...)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in methods or ast.unparse(node.func.value) != owner:
            continue
        if node.args and isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value)


def _names(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted names of the keys; anything nested below a group's key is a value."""
    for name, value in tree.items():
        if name in GROUPS:
            if not isinstance(value, dict):
                raise ConfigError(f"aitoolkit.{name}: expected keys and values, found {value!r}")
            yield from (f"{name}.{key}" for key in value)
        else:
            yield name


def _unknown(name: str, group: str, known: Known) -> str:
    every = [f"{of}.{key}".lstrip(".") for of, keys in known.items() for key in sorted(keys)]
    offered = [key for key in every if key not in TAKEN]
    here = [key for key in offered if key.rpartition(".")[0] == group]
    near = difflib.get_close_matches(name, here, n=1) or difflib.get_close_matches(
        name, offered, n=1
    )
    hint = f"; did you mean aitoolkit.{near[0]}?" if near else ""
    return f"aitoolkit.{name}: ai-toolkit has no such key and would ignore it{hint}"
