"""`ditbench finetune tiny FOLDER`: a tiny Flux, five captioned images, and an assistant LoRA.

The model has every part of a real Flux in diffusers layout and is read like one. Its VAE encodes
mean colours; the other weights are random. `--size demo` trains its transformer to draw sprites, so
that a LoRA can teach it another one in a minute. `--size mid` makes blocks of the real shapes, but
only a few of them.
"""

import argparse
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel
from safetensors.torch import save_file

from configs.errors import ConfigError
from finetune.native.base_model import hide_progress_bars
from finetune.sprites import learn_sprites, save_subject

_LETTERS = [chr(code) for code in range(33, 127)]
# The constants of the VAE's norms; colours are in -1..1.
_BESIDE = 30.0


@dataclass(frozen=True, kw_only=True)
class FluxShape:
    """Widths and depths of a model's parts; `side` is that of its images in pixels."""

    blocks: int
    single_blocks: int
    heads: int
    rope: tuple[int, int, int]
    clip_width: int
    t5_width: int
    vae_channels: tuple[int, ...]
    side: int
    dtype: torch.dtype
    text_tokens: int = 512
    pretraining_steps: int = 0

    @property
    def head_width(self) -> int:
        """The width of an attention head, which the three position axes share."""
        return sum(self.rope)


_TINY = FluxShape(
    blocks=1,
    single_blocks=1,
    heads=2,
    rope=(4, 6, 6),
    clip_width=16,
    t5_width=16,
    vae_channels=(8, 8, 8, 8),
    side=64,
    dtype=torch.float32,
)
SHAPES = {
    "tiny": _TINY,
    "demo": replace(_TINY, heads=8, text_tokens=48, pretraining_steps=400),
    "mid": FluxShape(
        blocks=2,
        single_blocks=4,
        heads=24,
        rope=(16, 56, 56),
        clip_width=768,
        t5_width=4096,
        vae_channels=(128, 256, 512, 512),
        side=1024,
        dtype=torch.bfloat16,
    ),
}


def main(arguments: list[str]) -> int:
    """Run `ditbench finetune tiny FOLDER [--size demo] [--variant dev]`."""
    parser = argparse.ArgumentParser(
        prog="ditbench finetune tiny",
        description="Make a tiny Flux, five captioned images and an assistant LoRA in a new "
        "folder. Example: ditbench finetune tiny logs/tiny-flux",
    )
    parser.add_argument("folder", type=Path, help="folder to create")
    parser.add_argument("--size", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--variant", choices=("schnell", "dev"), default="schnell")
    options = parser.parse_args(arguments)
    hide_progress_bars()
    torch.set_num_threads(1)  # its matrices are too small for more
    make_tiny_flux(options.folder, size=options.size, variant=options.variant)
    print(options.folder)
    return 0


def make_tiny_flux(
    folder: Path, *, size: str = "tiny", variant: str = "schnell", seed: int = 0
) -> None:
    """Make `model/`, `images/` and `assistant.safetensors` in a new or empty folder."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty; name a new folder, or remove it")
    shape = SHAPES[size]
    save_subject(folder / "images", side=shape.side)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        save_model(folder / "model", shape, variant=variant)
        _save_assistant(folder / "assistant.safetensors", shape)


def save_model(folder: Path, shape: FluxShape, *, variant: str) -> None:
    """Save a Flux in diffusers layout."""
    folder.mkdir(parents=True)
    _save_text_encoders(folder, shape)
    _cast(shape.dtype, _vae(shape)).save_pretrained(folder / "vae")
    FlowMatchEulerDiscreteScheduler(
        shift=1.0 if variant == "schnell" else 3.0, use_dynamic_shifting=variant == "dev"
    ).save_pretrained(folder / "scheduler")
    parts = {
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler"),
        "text_encoder": ("transformers", "CLIPTextModel"),
        "text_encoder_2": ("transformers", "T5EncoderModel"),
        "tokenizer": ("transformers", "CLIPTokenizer"),
        "tokenizer_2": ("transformers", "T5TokenizerFast"),
        "transformer": ("diffusers", "FluxTransformer2DModel"),
        "vae": ("diffusers", "AutoencoderKL"),
    }
    index = {"_class_name": "FluxPipeline", **{name: list(part) for name, part in parts.items()}}
    (folder / "model_index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    transformer = _transformer(shape, variant)
    if shape.pretraining_steps:
        side, steps, tokens = shape.side, shape.pretraining_steps, shape.text_tokens
        learn_sprites(transformer, folder, side=side, steps=steps, text_tokens=tokens)
    _cast(shape.dtype, transformer).save_pretrained(folder / "transformer")


def _transformer(shape: FluxShape, variant: str) -> FluxTransformer2DModel:
    return FluxTransformer2DModel(
        num_layers=shape.blocks,
        num_single_layers=shape.single_blocks,
        attention_head_dim=shape.head_width,
        num_attention_heads=shape.heads,
        joint_attention_dim=shape.t5_width,
        pooled_projection_dim=shape.clip_width,
        axes_dims_rope=shape.rope,
        guidance_embeds=variant == "dev",
    )


def _save_text_encoders(folder: Path, shape: FluxShape) -> None:
    heads = max(1, shape.clip_width // 64)
    clip = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=_save_clip_tokenizer(folder / "tokenizer"),
            hidden_size=shape.clip_width,
            projection_dim=shape.clip_width,
            intermediate_size=2 * shape.clip_width,
            num_hidden_layers=1,
            num_attention_heads=heads,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
    )
    _cast(shape.dtype, clip).save_pretrained(folder / "text_encoder")
    heads = max(1, shape.t5_width // 64)
    t5 = transformers.T5EncoderModel(
        transformers.T5Config(
            vocab_size=_save_t5_tokenizer(folder / "tokenizer_2", tokens=shape.text_tokens),
            d_model=shape.t5_width,
            d_kv=shape.t5_width // heads,
            d_ff=2 * shape.t5_width,
            num_layers=1,
            num_heads=heads,
            feed_forward_proj="gated-gelu",
        )
    )
    _cast(shape.dtype, t5).save_pretrained(folder / "text_encoder_2")


def _save_clip_tokenizer(folder: Path) -> int:
    """Save a tokenizer that knows single letters only; return its vocabulary size."""
    words = ["<|startoftext|>", "<|endoftext|>", *_LETTERS, *(f"{c}</w>" for c in _LETTERS)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)
    tokenizer.save_pretrained(folder)
    # Loaders of other versions build the tokenizer from vocab.json and merges.txt.
    tokenizer._tokenizer.model.save(str(folder))
    return len(words)


def _save_t5_tokenizer(folder: Path, *, tokens: int) -> int:
    """Save a tokenizer that knows single letters only; return its vocabulary size."""
    scores = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
    scores += [(letter, -3.0) for letter in _LETTERS]
    transformers.T5Tokenizer(vocab=scores, extra_ids=0, model_max_length=tokens).save_pretrained(
        folder
    )
    return len(scores)


@torch.no_grad()
def _vae(shape: FluxShape) -> AutoencoderKL:
    """Return a VAE whose 16 latents are the mean colour of 8 x 8 pixels, repeated.

    It draws such squares exactly, which random weights cannot. The branches of its residual blocks
    are zero. A colour c passes as channels c and -c, because SiLU(x) - SiLU(-x) = x, beside
    constants that dominate the single group of each norm, so that a norm divides by a constant.
    Its posterior is as narrow as a trained one: ai-toolkit draws from it, the native engine takes
    its mean.
    """
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=shape.vae_channels,
        layers_per_block=1,
        latent_channels=16,
        norm_num_groups=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    for name, parameter in vae.named_parameters():
        parameter.fill_(float("norm" in name and name.endswith("weight")))
        if "samplers" in name or "conv_shortcut" in name:
            torch.nn.init.dirac_(parameter) if parameter.ndim == 4 else None
        if "downsamplers" in name and parameter.ndim == 4:
            parameter[:, :, :2, :2] = parameter.sum((2, 3), keepdim=True) / 4
    signs = torch.tensor([1.0, -1.0])
    colours = torch.eye(3).kron(signs[:, None])
    repeated = torch.eye(3).repeat(6, 1)[:16]
    wide, deep = shape.vae_channels[0], shape.vae_channels[-1]
    encoder, decoder = vae.encoder, vae.decoder
    encoder.conv_in.weight[:6, :, 1, 1] = colours
    encoder.conv_out.weight[:16, :6, 1, 1] = repeated @ colours.T * _BESIDE * math.sqrt(2 / deep)
    # The other half of the channels are the log variances.
    encoder.conv_out.bias[16:] = -20.0
    decoder.conv_in.weight[:6, :, 1, 1] = colours @ torch.linalg.pinv(repeated)
    decoder.conv_out.weight[:, :6, 1, 1] = colours.T * _BESIDE * math.sqrt(2 / wide)
    for first in (encoder.conv_in, decoder.conv_in):
        first.bias[6:8] = _BESIDE * signs
    # Colours are uniform in -1..1.
    vae.register_to_config(scaling_factor=math.sqrt(3), shift_factor=0.0)
    return vae


def _cast(dtype: torch.dtype, model: Any) -> Any:
    """Convert the parameters of a model to `dtype`, but not its buffers."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def _save_assistant(file: Path, shape: FluxShape) -> None:
    """Save a random LoRA of rank 4 on all attention, in keys that diffusers and ai-toolkit read."""
    width = shape.heads * shape.head_width
    tensors = {}
    blocks = [f"transformer_blocks.{number}" for number in range(shape.blocks)]
    blocks += [f"single_transformer_blocks.{number}" for number in range(shape.single_blocks)]
    for block in blocks:
        for name in ("to_q", "to_k", "to_v"):
            key = f"transformer.{block}.attn.{name}"
            tensors[f"{key}.lora_A.weight"] = torch.randn(4, width) / width**0.5
            tensors[f"{key}.lora_B.weight"] = torch.randn(width, 4) / 4
    save_file(tensors, str(file))
