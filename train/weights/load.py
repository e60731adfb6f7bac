"""Weights to begin with: what `model.init_from` names, in all the forms that it comes in."""

import argparse
import json
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

from configs.errors import ConfigError
from configs.run.folder import RunFolder, is_run
from configs.schema import Pretrain
from train.engine.checkpoint import read_weights
from train.engine.checkpoint_files import newest
from train.weights.published import State, from_diffusers, from_official, is_official
from train.weights.seed import NOTE


def has_sharded_weights(path: Path) -> bool:
    """Whether weights come from a run or a seed checkpoint, which any layout can read."""
    return is_run(path) or (path / NOTE).is_file()


def load_whole_weights(network: nn.Module, config: Pretrain) -> None:
    """Load `model.init_from`, a file or a diffusers folder, into the whole network."""
    path = Path(str(config.model.init_from))
    state = _read(path, config)
    wanted = network.state_dict()
    missing, surplus = wanted.keys() - state.keys(), state.keys() - wanted.keys()
    wrong = [n for n in wanted if n in state and wanted[n].shape != state[n].shape]
    if missing or surplus or wrong:
        raise ConfigError(
            f"model.init_from {path}: {_misfit(missing, surplus, wrong, wanted, state)}"
        )
    network.load_state_dict(state)


def load_sharded_weights(network: nn.Module, config: Pretrain) -> None:
    """Load `model.init_from`, a run or a seed checkpoint, into a network however it is laid out."""
    path = Path(str(config.model.init_from))
    if not is_run(path):
        weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
        dcp.load({"network": weights}, checkpoint_id=path)
        return
    folder = RunFolder(path).checkpoints
    name = newest(folder)
    if name is None:
        raise ConfigError(f"model.init_from {path}: the run has no checkpoint yet")
    read_weights(folder / name, network, which=config.model.init_weights)


def _read(path: Path, config: Pretrain) -> State:
    heads = config.model.heads
    if path.is_dir():
        return from_diffusers(_read_diffusers(path), heads=heads)
    if path.suffix == ".safetensors":
        state = _read_safetensors(path)
        return from_official(state, heads=heads) if is_official(state) else state
    state = _read_torch(path, config.model.init_weights)
    if not is_official(state):
        raise ConfigError(f"model.init_from {path}: holds no weights of a DiT")
    return from_official(state, heads=heads)


def _read_diffusers(path: Path) -> State:
    folder = path if (path / "config.json").is_file() else path / "transformer"
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["_class_name"]
    except (OSError, ValueError, KeyError):
        raise ConfigError(
            f"model.init_from {path}: neither a run, a seed checkpoint nor a diffusers DiT "
            "(it has no config.json)"
        ) from None
    if kind not in ("DiTTransformer2DModel", "Transformer2DModel"):
        raise ConfigError(f"model.init_from {path}: a {kind}, not a DiTTransformer2DModel")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(f"model.init_from {folder}: holds no .safetensors file")
    return {name: value for file in files for name, value in _read_safetensors(file).items()}


def _read_safetensors(path: Path) -> State:
    try:
        with safe_open(path, framework="pt"):
            return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"model.init_from {path}: cannot be read: {error}") from None


def _read_torch(path: Path, which: str) -> State:
    """The tensors of a torch file; fast-DiT's holds `ema` and `model` beside its optimizer."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        # torch names no type for what a damaged or an unsafe file raises.
        raise ConfigError(f"model.init_from {path}: cannot be read as weights: {error}") from None
    if isinstance(held, dict) and isinstance(held.get(which), dict):
        held = held[which]
    if not isinstance(held, dict) or not all(isinstance(v, torch.Tensor) for v in held.values()):
        raise ConfigError(f"model.init_from {path}: holds no weights of a DiT")
    return held


def _misfit(
    missing: set[str], surplus: set[str], wrong: list[str], wanted: State, state: State
) -> str:
    """What does not fit, and the key that would mend it where one would."""
    if wrong:
        name = sorted(wrong)[0]
        return (
            f"{name} is {list(state[name].shape)}, the config makes it {list(wanted[name].shape)}; "
            "set model.width, depth, patch, mlp_ratio and data.channels, classes to the weights'"
        )
    said = f"lacks {sorted(missing)[0]}" if missing else f"has {sorted(surplus)[0]} too many"
    blocks = [len({name.split(".")[1] for name in names if name.startswith("blocks.")})
              for names in (state, wanted)]  # fmt: skip
    if blocks[0] != blocks[1]:
        return f"{said}; set model.depth to its {blocks[0]} blocks"
    mends = {"q_norm": "model.qk_norm: false", "modulation": "model.conditioning: in_context"}
    hints = [mend for word, mend in mends.items() if any(word in name for name in missing)]
    return f"{said}; set {' and '.join(hints) or 'model.mlp and the like to its parts'}"
