"""Forecast a LoRA of Flux by the native engine: memory by part, seconds per step, hours; no torch.

It shares the command and the GPUs of pretraining. The sizes are those of the model's own config, or
of FLUX.1 if its folder is not here. What a token costs was counted by `benchmarks/lora_step.py`,
with which tests compare it.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from configs.checks.batch import BatchLayout, divide
from configs.gpus import Gpu, named_gpu
from configs.schema import Finetune
from train.forecast.activations import PRECISION_BYTES
from train.forecast.estimate import capacity_bytes, changed
from train.forecast.memory import GIB, overhead
from train.forecast.query import ForecastQuery
from train.forecast.roofline import ATTENTION_SLOWDOWN, COPY_EFFICIENCY, sheet_step

# Parameters of the text encoders and of the VAE, and the most bytes per pixel that the VAE holds:
# in float32 when it encodes, in bf16 when it decodes.
_ENCODERS, _VAE, _ENCODING_PX, _DECODING_PX = 4_885_000_000, 83_819_683, 2572, 1537
_SIZES = {
    "num_layers": 19, "num_single_layers": 38, "num_attention_heads": 24, "in_channels": 64,
    "attention_head_dim": 128, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
}  # fmt: skip
# By kind of block: values per token and channel that autograd saves, and bytes per token and
# channel that it moves in bf16 beside its products, without and with recomputation.
_BLOCKS = {"transformer_blocks": (18, 426, 612), "single_transformer_blocks": (17, 379, 544)}
# Values per token and channel that the backward pass of a block adds.
_WORK = 10
# Bytes moved per parameter of the LoRA: casts, clipping, AdamW, average.
_UPDATE = 52
# Cheapest first.
_FIXES = {"train.gradient_checkpointing": True, "train.micro_batch": 1}


@dataclass(frozen=True)
class Layer:
    """A linear layer and the tokens that it sees; of `vector` there is one per image."""

    name: str
    inputs: int
    outputs: int
    tokens: str


def flux_layers(config: Finetune) -> tuple[dict[str, int], list[Layer]]:
    """Return the sizes of the config's model by their names there, and its linear layers."""
    try:
        file = Path(str(config.flux.folder)) / "transformer" / "config.json"
        found = json.loads(file.read_text(encoding="utf-8"))
        sizes = {name: int(found.get(name, value)) for name, value in _SIZES.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        sizes = dict(_SIZES)
    return sizes, list(_layers(sizes, takes_guidance=config.flux.variant == "dev"))


def _layers(sizes: dict[str, int], *, takes_guidance: bool) -> Iterator[Layer]:
    d = sizes["num_attention_heads"] * sizes["attention_head_dim"]
    yield Layer("x_embedder", sizes["in_channels"], d, "image")
    yield Layer("context_embedder", sizes["joint_attention_dim"], d, "text")
    vectors = {"timestep": 256, "text": sizes["pooled_projection_dim"]}
    for name, inputs in (vectors | ({"guidance": 256} if takes_guidance else {})).items():
        yield Layer(f"time_text_embed.{name}_embedder.linear_1", inputs, d, "vector")
        yield Layer(f"time_text_embed.{name}_embedder.linear_2", d, d, "vector")
    for block in (f"transformer_blocks.{number}" for number in range(sizes["num_layers"])):
        for name in ("to_q", "to_k", "to_v", "to_out.0"):
            yield Layer(f"{block}.attn.{name}", d, d, "image")
        for name in ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            yield Layer(f"{block}.attn.{name}", d, d, "text")
        for part, tokens in (("", "image"), ("_context", "text")):
            yield Layer(f"{block}.ff{part}.net.0.proj", d, 4 * d, tokens)
            yield Layer(f"{block}.ff{part}.net.2", 4 * d, d, tokens)
            yield Layer(f"{block}.norm1{part}.linear", d, 6 * d, "vector")
    for number in range(sizes["num_single_layers"]):
        block = f"single_transformer_blocks.{number}"
        for name, into, out in (("attn.to_q", 1, 1), ("attn.to_k", 1, 1), ("attn.to_v", 1, 1),
                                ("proj_mlp", 1, 4), ("proj_out", 5, 1)):  # fmt: skip
            yield Layer(f"{block}.{name}", into * d, out * d, "both")
        yield Layer(f"{block}.norm.linear", d, 3 * d, "vector")
    yield Layer("norm_out.linear", d, 2 * d, "vector")
    yield Layer("proj_out", d, sizes["in_channels"], "image")


class LoraForecast:
    """The forecast of one rank; `px` is the root of an image's area."""

    def __init__(self, config: Finetune, layout: BatchLayout) -> None:
        self._config, self.layout, self._rank = config, layout, config.lora.rank
        self._sizes, self._layers = flux_layers(config)
        self._e = PRECISION_BYTES[config.train.precision]
        self._d = self._sizes["num_attention_heads"] * self._sizes["attention_head_dim"]
        numbers = (self._sizes["num_layers"], self._sizes["num_single_layers"])
        self._blocks = dict(zip(_BLOCKS, numbers, strict=True))
        self._is_again = config.train.gradient_checkpointing
        self.parameters = sum(map(self._update, self._layers))

    def gib(self) -> dict[str, float]:
        """Return GiB by part and by phase at the largest size, their `peak` and the `total`."""
        config, largest = self._config, max(self._config.data.resolutions)
        is_averaged = config.train.ema_decay is not None
        kept, at_work = self._activations(largest)
        parts = {
            "base": float(sum(map(self._base_bytes, self._layers)) + self._e * _VAE),
            "lora": 4.0 * self.parameters * (1 + is_averaged),
            "optimizer": 8.0 * self.parameters,
        }
        gradients, held = 4.0 * self.parameters, sum(parts.values())
        # Kept activations go as gradients come: the most is at either end of the backward pass.
        step = max(kept + at_work, gradients + at_work)
        decoded = _DECODING_PX * config.sample.width * config.sample.height * self._e / 2
        phases = {
            "encoding": max(self._e * _ENCODERS, 4.0 * _VAE + _ENCODING_PX * largest**2),
            "step": held + step,
            "samples": held + decoded,
        }
        parts |= {"gradients": gradients, "activations": kept + at_work} | phases
        parts["peak"] = max(phases.values())
        parts["total"] = parts["peak"] + overhead(self.layout, peak=parts["peak"])
        return {name: size / GIB for name, size in parts.items()}

    def seconds(self, gpu: Gpu) -> dict[str, Any] | None:
        """Return `step_s`, the mean over sizes, and `hours` of all steps and samples.

        Loading and encoding are left out. Return None if the GPU lacks the arithmetic.
        """
        config, drawn = self._config, self._config.sample
        peak: float | None = getattr(gpu.peak_tflops, config.train.precision)
        if peak is None:
            return None
        rate, bandwidth = peak * 1e12 * gpu.matmul_share, gpu.bandwidth_gb_s * 1e9 * COPY_EFFICIENCY

        def image(px: float, *, backward: bool) -> float:
            # A forward pass alone moves a third of what it moves with the backward pass.
            moved = self._moved(px) / (1 if backward else 3)
            return self._flops(px, backward=backward) / rate + moved / bandwidth

        sizes, images = config.data.resolutions, self.layout.micro_batch * self.layout.accumulation
        once = _UPDATE * self.parameters / bandwidth
        step = once + images * sum(image(px, backward=True) for px in sizes) / len(sizes)
        times = 2 + ((config.train.steps - 1) // drawn.every if drawn.every else 0)
        draw = drawn.steps * image((drawn.width * drawn.height) ** 0.5, backward=False)
        drawing = times * max(1, len(drawn.prompts)) * draw / self.layout.world
        hours = (config.train.steps * step + drawing) / 3600
        return {"step_s": asdict(sheet_step(step)), "hours": hours}

    def _tokens(self, px: float) -> dict[str, float]:
        image, text = (px / 16) ** 2, self._config.flux.text_tokens
        return {"image": image, "text": text, "both": image + text, "vector": 1}

    def _update(self, layer: Layer) -> int:
        """Return the parameters of a layer's update."""
        is_tuned = self._config.lora.selects(layer.name)
        return self._rank * (layer.inputs + layer.outputs) * is_tuned

    def _base_bytes(self, layer: Layer) -> int:
        return self._e * layer.outputs * (1 + layer.inputs)

    def _flops(self, px: float, *, backward: bool) -> float:
        """Return the FLOPs of one image; those of attention count by the time that they take."""
        tokens, passes = self._tokens(px), 1 + backward * (1 + self._is_again)
        base = sum(2.0 * one.inputs * one.outputs * tokens[one.tokens] for one in self._layers)
        lora = sum(2.0 * self._update(one) * tokens[one.tokens] for one in self._layers)
        scores = 4.0 * sum(self._blocks.values()) * tokens["both"] ** 2 * self._d
        # For two products forward, attention has five backward and the LoRA four.
        attention = ATTENTION_SLOWDOWN * scores * (passes + 1.5 * backward)
        return passes * base + (passes + backward) * lora + attention

    def _moved(self, px: float) -> float:
        """Return the bytes that a step moves for an image beside its products and attention."""
        each = (n * _BLOCKS[kind][1 + self._is_again] for kind, n in self._blocks.items())
        return self._tokens(px)["both"] * self._d * self._e / 2 * sum(each)

    def _activations(self, px: float) -> tuple[float, float]:
        """Return the bytes kept of the forward pass, and those of the block at work."""
        stream = self._e * self._d * self._tokens(px)["both"] * self.layout.micro_batch
        work = _WORK * stream
        blocks = {kind: self._saved(kind, px) for kind in self._blocks}
        if self._is_again:
            return (sum(self._blocks.values()) + 1) * stream, max(blocks.values()) + work
        return sum(n * blocks[kind] for kind, n in self._blocks.items()), work

    def _saved(self, kind: str, px: float) -> float:
        """Return the bytes that autograd saves of one block of a kind."""
        tokens, e = self._tokens(px), self._e
        token = _BLOCKS[kind][0] * e * self._d + 8 * self._sizes["num_attention_heads"]
        image, casts = tokens["both"] * token, 0.0
        for layer in (one for one in self._layers if one.name.startswith(f"{kind}.0.")):
            if update := self._update(layer):
                image += e * self._rank * tokens[layer.tokens]
                casts += e * update
            elif layer.inputs > self._d:  # its input is saved for the update alone
                image -= e * layer.inputs * tokens[layer.tokens]
        return self.layout.micro_batch * image + casts


def forecast_lora(query: ForecastQuery) -> dict[str, Any]:
    """Return the forecast for the GPUs of a query, in the form of that of pretraining."""
    layout = divide(query.config, world=query.world)
    found = LoraForecast(query.config, layout)
    gib, gpus = found.gib(), {}
    for name, gpu in query.gpus.items():
        capacity, seconds = capacity_bytes(gpu) / GIB, found.seconds(gpu)
        reason, fix = None, None
        if gib["total"] > capacity:
            reason = f"the run takes {gib['total']:.1f} of {capacity:.0f} GiB"
            fix = _fix(query, capacity)
        elif seconds is None:
            precision = query.config.train.precision
            reason, fix = f"it has no arithmetic for train.precision {precision}", "another GPU"
        gpus[name] = {
            "gib": gib,
            "capacity_gib": capacity,
            "micro_batch": layout.micro_batch,
            "fits": reason is None,
            "reason": reason,
            "fix": fix,
            "type": named_gpu(name)[0],
            **((seconds or {}) if reason is None else {}),
        }
    return {
        "config": query.source, "world": query.world, "parameters": found.parameters, "gpus": gpus,
    }  # fmt: skip


def _fix(query: ForecastQuery, capacity: float) -> str:
    """Return the changes with which the run fits: those of `_FIXES` in order until it does."""
    config, words, least = query.config, [], float("inf")
    for name, value in (("", None), *_FIXES.items()):
        candidate = changed(config, {name: value}) if name else config
        layout = divide(candidate, world=query.world)
        total = LoraForecast(candidate, layout).gib()["total"]
        if total < least:
            config, least = candidate, total
            words += [f"{name}={str(value).lower()}"] * bool(name)
        if least <= capacity:
            return " ".join(words)
    return "smaller data.resolutions, or a GPU with more memory"
