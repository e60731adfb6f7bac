"""A Flux of random weights, with every part that a real one has, in diffusers layout."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)

_LETTERS = [chr(code) for code in range(33, 127)]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Widths and depths of the parts."""

    blocks: int
    single_blocks: int
    heads: int
    rope: tuple[int, int, int]
    clip_width: int
    t5_width: int
    vae_channels: tuple[int, ...]
    side: int
    dtype: torch.dtype

    @property
    def head_width(self) -> int:
        """Width of an attention head, which the three axes of the position share."""
        return sum(self.rope)


SHAPES = {
    "tiny": Shape(
        blocks=1,
        single_blocks=1,
        heads=2,
        rope=(4, 6, 6),
        clip_width=16,
        t5_width=16,
        vae_channels=(8, 8, 8, 8),
        side=64,
        dtype=torch.float32,
    ),
    "mid": Shape(
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


def save_model(folder: Path, shape: Shape, *, variant: str) -> None:
    """A random Flux in diffusers layout."""
    folder.mkdir(parents=True)
    _held_in(shape.dtype, _transformer(shape, variant)).save_pretrained(folder / "transformer")
    _save_text_encoders(folder, shape)
    _held_in(shape.dtype, _vae(shape)).save_pretrained(folder / "vae")
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


def _transformer(shape: Shape, variant: str) -> FluxTransformer2DModel:
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


def _save_text_encoders(folder: Path, shape: Shape) -> None:
    heads = max(1, shape.clip_width // 64)
    clip = CLIPTextModel(
        CLIPTextConfig(
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
    _held_in(shape.dtype, clip).save_pretrained(folder / "text_encoder")
    heads = max(1, shape.t5_width // 64)
    t5 = T5EncoderModel(
        T5Config(
            vocab_size=_save_t5_tokenizer(folder / "tokenizer_2"),
            d_model=shape.t5_width,
            d_kv=shape.t5_width // heads,
            d_ff=2 * shape.t5_width,
            num_layers=1,
            num_heads=heads,
            feed_forward_proj="gated-gelu",
        )
    )
    _held_in(shape.dtype, t5).save_pretrained(folder / "text_encoder_2")


def _save_clip_tokenizer(folder: Path) -> int:
    """A tokenizer that knows letters only; the number of its tokens."""
    words = ["<|startoftext|>", "<|endoftext|>", *_LETTERS, *(f"{c}</w>" for c in _LETTERS)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)
    tokenizer.save_pretrained(folder)
    # A loader of another version makes the tokenizer from vocab.json and merges.txt.
    tokenizer._tokenizer.model.save(str(folder))
    return len(words)


def _save_t5_tokenizer(folder: Path) -> int:
    """A tokenizer that knows letters only; the number of its tokens."""
    scores = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
    scores += [(letter, -3.0) for letter in _LETTERS]
    T5Tokenizer(vocab=scores, extra_ids=0, model_max_length=512).save_pretrained(folder)
    return len(scores)


@torch.no_grad()
def _vae(shape: Shape) -> AutoencoderKL:
    """A VAE of 16 latent channels, whose latents are about standard normal."""
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=shape.vae_channels,
        layers_per_block=1,
        latent_channels=16,
        norm_num_groups=4,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    coarse = torch.rand(4, 3, 4, 4) * 2 - 1
    image = torch.nn.functional.interpolate(coarse, (64, 64), mode="bicubic").clamp(-1, 1)
    latent = vae.encode(image).latent_dist.mode()
    vae.register_to_config(
        scaling_factor=1 / latent.std().item(), shift_factor=latent.mean().item()
    )
    return vae


def _held_in(dtype: torch.dtype, model: Any) -> Any:
    """The model with its weights in `dtype`."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model
