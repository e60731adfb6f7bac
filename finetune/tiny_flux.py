"""`ditbench finetune tiny FOLDER`: a tiny Flux, and five captioned images.

The model has every part of a real Flux in diffusers layout and is read like one. Its VAE encodes
mean colours; the other weights are random. `--size demo` trains its transformer to draw sprites, so
that a LoRA can teach it another one in a minute.
"""

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel

from configs.errors import ConfigError
from finetune.native.base_model import hide_progress_bars
from finetune.sprites import learn_sprites, save_subject

_LETTERS = [chr(code) for code in range(33, 127)]
# The constants of the VAE's norms; colours are in -1..1.
_BESIDE = 30.0


# Of the images, in pixels, and the widths and channels of the parts.
_SIDE, _TEXT_WIDTH, _VAE_CHANNELS, _ROPE = 64, 16, (8, 8, 8, 8), (4, 6, 6)


@dataclass(frozen=True, kw_only=True)
class FluxSize:
    """The sizes in which models differ: attention heads, tokens of T5, and steps on sprites."""

    heads: int
    text_tokens: int
    pretraining_steps: int


SIZES = {
    "tiny": FluxSize(heads=2, text_tokens=512, pretraining_steps=0),
    "demo": FluxSize(heads=8, text_tokens=48, pretraining_steps=400),
}


def main(arguments: list[str]) -> int:
    """Run `ditbench finetune tiny FOLDER [--size demo]`."""
    parser = argparse.ArgumentParser(
        prog="ditbench finetune tiny",
        description="Make a tiny Flux and five captioned images in a new folder. "
        "Example: ditbench finetune tiny logs/tiny-flux",
    )
    parser.add_argument("folder", type=Path, help="folder to create")
    parser.add_argument("--size", choices=sorted(SIZES), default="tiny")
    options = parser.parse_args(arguments)
    hide_progress_bars()
    torch.set_num_threads(1)  # its matrices are too small for more
    make_tiny_flux(options.folder, size=options.size)
    print(options.folder)
    return 0


def make_tiny_flux(folder: Path, *, size: str = "tiny", seed: int = 0) -> None:
    """Make `model/` and `images/` in a new or empty folder."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty; name a new folder, or remove it")
    save_subject(folder / "images", side=_SIDE)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        save_model(folder / "model", SIZES[size])


def save_model(folder: Path, size: FluxSize, *, variant: str = "schnell") -> None:
    """Save a Flux in diffusers layout."""
    folder.mkdir(parents=True)
    _save_text_encoders(folder, text_tokens=size.text_tokens)
    _vae().save_pretrained(folder / "vae")
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
    transformer = FluxTransformer2DModel(
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=sum(_ROPE),
        num_attention_heads=size.heads,
        joint_attention_dim=_TEXT_WIDTH,
        pooled_projection_dim=_TEXT_WIDTH,
        axes_dims_rope=_ROPE,
        guidance_embeds=variant == "dev",
    )
    if steps := size.pretraining_steps:
        learn_sprites(transformer, folder, side=_SIDE, steps=steps)
    transformer.save_pretrained(folder / "transformer")


def _save_text_encoders(folder: Path, *, text_tokens: int) -> None:
    clip = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=_save_clip_tokenizer(folder / "tokenizer"),
            hidden_size=_TEXT_WIDTH,
            projection_dim=_TEXT_WIDTH,
            intermediate_size=2 * _TEXT_WIDTH,
            num_hidden_layers=1,
            num_attention_heads=1,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
    )
    clip.save_pretrained(folder / "text_encoder")
    t5 = transformers.T5EncoderModel(
        transformers.T5Config(
            vocab_size=_save_t5_tokenizer(folder / "tokenizer_2", tokens=text_tokens),
            d_model=_TEXT_WIDTH,
            d_kv=_TEXT_WIDTH,
            d_ff=2 * _TEXT_WIDTH,
            num_layers=1,
            num_heads=1,
            feed_forward_proj="gated-gelu",
        )
    )
    t5.save_pretrained(folder / "text_encoder_2")


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
def _vae() -> AutoencoderKL:
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
        block_out_channels=_VAE_CHANNELS,
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
    wide, deep = _VAE_CHANNELS[0], _VAE_CHANNELS[-1]
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
