"""Work on LoRA files of Flux: merge, convert and compare them, by peft and diffusers.

ditbench finetune lora merge MODEL LORA OUT        write a model with the LoRA in its weights
ditbench finetune lora convert LORA OUT --to KEYS  write other keys
ditbench finetune lora compare LORA LORA           show norms by layer, and cosines
"""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from diffusers import FluxPipeline
from diffusers.loaders.lora_base import LORA_ADAPTER_METADATA_KEY
from peft.utils.other import get_pattern_key
from safetensors.torch import save_file
from torch import Tensor

from configs.checks.flux import check_flux, weight_files
from configs.checks.lora import BLOCKS, check_fits, matrices
from configs.disk import read_safetensors_header, replacing
from configs.errors import ConfigError
from configs.table import show
from configs.terminal import command_parser
from finetune.native.base_model import load_transformer
from finetune.native.lora import load_lora

# An update A, B by the name of its layer.
Updates = dict[str, tuple[Tensor, Tensor]]

_PREFIXES = {"comfyui": "diffusion_model.", "kohya": "lora_unet_"}
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def main(arguments: list[str]) -> int:
    """Run `ditbench finetune lora merge|convert|compare`."""
    parser = command_parser("finetune lora", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    merging = commands.add_parser("merge", help="add a LoRA to the weights of a model folder")
    converting = commands.add_parser("convert", help="write a LoRA in other keys")
    comparing = commands.add_parser("compare", help="compare two LoRAs layer by layer")
    for command, names in (
        (merging, ("model", "lora", "out")),
        (converting, ("lora", "out")),
        (comparing, ("one", "other")),
    ):
        for name in names:
            command.add_argument(name, type=Path)
    merging.add_argument("--scale", type=float, default=1.0, help="factor of the LoRA")
    converting.add_argument("--to", choices=("diffusers", *_PREFIXES), required=True)
    comparing.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    out: Path | None = getattr(options, "out", None)
    if out is not None and out.exists():
        raise ConfigError(f"{out}: exists already; name another, or remove it")
    with torch.no_grad():
        if options.command == "merge":
            merge(options.model, options.lora, options.out, scale=options.scale)
        elif options.command == "convert":
            convert(options.lora, options.out, to=options.to)
        else:
            show(compare(options.one, options.other), "json" if options.json else "text")
    return 0


def merge(model: Path, lora: Path, out: Path, *, scale: float) -> None:
    """Write a model folder with a LoRA or DoRA in the weights of its transformer."""
    check_flux(model, variant=None)
    check_fits(lora, model)
    first, *_ = read_safetensors_header(weight_files(model / "transformer")[0]).tensors.values()
    cpu = torch.device("cpu")
    transformer = load_transformer(model, _DTYPES[first.dtype], device=cpu)
    load_lora(transformer, lora, scale=scale)
    transformer.fuse_lora(safe_fusing=True)
    transformer.unload_lora()
    shutil.copytree(model, out, ignore=shutil.ignore_patterns("transformer"))
    transformer.save_pretrained(out / "transformer")


def convert(lora: Path, out: Path, *, to: str) -> None:
    """Write a LoRA in other keys. That of joined layers is block-diagonal, with all their ranks."""
    updates = read_updates(lora)
    tensors = _diffusers_keys(updates) if to == "diffusers" else _joined_keys(updates, to)
    metadata = read_safetensors_header(lora).metadata
    # The scale that it names is multiplied into the matrices.
    metadata.pop(LORA_ADAPTER_METADATA_KEY, None)
    _save(tensors, out, metadata=metadata)


def read_updates(lora: Path) -> Updates:
    """Return the updates, but those of zero, of a file in any keys that diffusers reads."""
    matrices(lora)
    tensors, alphas, metadata = FluxPipeline.lora_state_dict(
        str(lora), return_alphas=True, return_lora_metadata=True
    )
    names = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    updates: Updates = {}
    for name, a in names.items():
        layer, part = name.removesuffix(".weight").rsplit(".", 1)
        if part not in ("lora_A", "lora_B"):
            raise ConfigError(f"{lora}: {name} is of no LoRA of two matrices; merge it instead")
        if part == "lora_A":
            alpha = (alphas or {}).get(f"transformer.{layer}.alpha")
            scale = _scale(layer, metadata) if alpha is None else float(alpha) / a.shape[0]
            b = names[f"{layer}.lora_B.weight"] * scale
            if a.any() or b.any():
                updates[layer] = (a, b)
    return updates


def _scale(layer: str, metadata: dict[str, Any] | None) -> float:
    """Return the scale of a layer by the config of peft that diffusers saves in a file."""
    config = {
        name.removeprefix("transformer."): value
        for name, value in (metadata or {}).items()
        if name.startswith("transformer.")
    }
    if not config:
        return 1.0
    ranks, alphas = config.get("rank_pattern") or {}, config.get("alpha_pattern") or {}
    rank = ranks.get(get_pattern_key(ranks, layer), config["r"])
    alpha = alphas.get(get_pattern_key(alphas, layer), config["lora_alpha"])
    return float(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _diffusers_keys(updates: Updates) -> dict[str, Tensor]:
    return {
        f"transformer.{layer}.lora_{part}.weight": matrix
        for layer, both in updates.items()
        for part, matrix in zip("AB", both, strict=True)
    }


def _joined_keys(updates: Updates, to: str) -> dict[str, Tensor]:
    """Return updates by the names of the original code, where q, k, v (and MLP) are one layer."""
    left, tensors = dict(updates), dict[str, Tensor]()
    for block in sorted({m[0] for name in updates if (m := re.match(r"\w+_blocks\.\d+", name))}):
        kind, number = block.split(".")
        original, layers = BLOCKS[kind]
        for joined, parts in layers.items():
            found = [left.pop(f"{block}.{part}", None) for part in parts]
            if any(found):
                a, b = _join(found, rows=[4 if part == "proj_mlp" else 1 for part in parts])
                name = f"{original}.{number}.{joined}"
                name = name.replace(".", "_") if to == "kohya" else name
                key = f"{_PREFIXES[to]}{name}"
                tensors |= {f"{key}.lora_down.weight": a, f"{key}.lora_up.weight": b}
                tensors[f"{key}.alpha"] = torch.tensor(float(a.shape[0]))
    if left:
        raise ConfigError(
            f"{next(iter(left))}: diffusers drops the layers outside the blocks from a file in "
            f"{to} keys; train with lora.targets blocks, or merge the LoRA"
        )
    return tensors


def _join(parts: list[tuple[Tensor, Tensor] | None], *, rows: list[int]) -> tuple[Tensor, Tensor]:
    """Return the update of layers with one input, whose outputs are joined; None: no update.

    `rows` is the number of outputs of each in units of that of the first.
    """
    present = [(part, share) for part, share in zip(parts, rows, strict=True) if part]
    rank = max(a.shape[0] for (a, _), _ in present)
    (a, b), share = present[0]
    downs, ups = [], []
    for part, each in zip(parts, rows, strict=True):
        down, up = a.new_zeros(rank, a.shape[1]), b.new_zeros(b.shape[0] // share * each, rank)
        if part:
            down[: part[0].shape[0]], up[:, : part[1].shape[1]] = part
        downs.append(down)
        ups.append(up)
    return torch.cat(downs), torch.block_diag(*ups)


def _save(tensors: dict[str, Tensor], out: Path, *, metadata: dict[str, str]) -> None:
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with replacing(out) as stream:
        save_file(contiguous, stream.name, metadata={"format": "pt"} | metadata)


def compare(one: Path, other: Path) -> list[dict[str, object]]:
    """Return for each layer the norms of both updates B A and the cosine between them."""
    first, second = read_updates(one), read_updates(other)
    sums = torch.zeros(3, dtype=torch.float64)
    rows: list[dict[str, object]] = []
    for layer in sorted(first.keys() | second.keys()):
        a, b = first.get(layer), second.get(layer)
        dots = torch.tensor([_dot(a, a), _dot(b, b), _dot(a, b)], dtype=torch.float64)
        sums += dots
        rows.append({"layer": layer} | _alike(dots))
    return [{"layer": "all"} | _alike(sums), *rows]


def _dot(one: tuple[Tensor, Tensor] | None, other: tuple[Tensor, Tensor] | None) -> float:
    """Return the inner product of two updates: the trace of (B A)^T B' A'."""
    if one is None or other is None:
        return 0.0
    (a, b), (c, d) = (tuple(matrix.double() for matrix in both) for both in (one, other))
    return float(((b.T @ d) * (a @ c.T)).sum())


def _alike(dots: Tensor) -> dict[str, object]:
    norms, cosine = dots[:2].clamp(min=0).sqrt(), None
    if (norms > 0).all():
        cosine = float(dots[2] / norms.prod())
    return {"norm": float(norms[0]), "norm_other": float(norms[1]), "cosine": cosine}
