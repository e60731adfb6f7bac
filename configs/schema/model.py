"""The network to train, and its initial weights."""

from typing import Literal

from pydantic import Field, model_validator

from configs.schema.key import KeyGroup, key


class Unet(KeyGroup):
    """A convolutional U-Net (Ho et al. 2020) as built by diffusers, for `model.family: unet`."""

    width: int = key(64, "channels at full resolution", "loss clock", ge=8, multiple_of=8)
    mults: list[int] = key(
        [1, 2, 4], "channels of each resolution, as multiples of width", "loss clock", min_length=1
    )
    layers: int = key(2, "residual blocks per resolution", "loss clock", ge=1)
    attention: list[bool] = key(
        [False, False, True], "for each resolution, whether it has self-attention", "loss clock"
    )

    @model_validator(mode="after")
    def _levels_fit(self) -> "Unet":
        if len(self.attention) != len(self.mults):
            raise ValueError(
                f"model.unet.attention has {len(self.attention)} entries, model.unet.mults "
                f"{len(self.mults)}: give one for each resolution"
            )
        if any(mult < 1 for mult in self.mults):
            raise ValueError("model.unet.mults must hold integers of at least 1")
        return self


class Jit(KeyGroup):
    """Parts of a JiT (Li & He 2025) beside the keys of model, for `model.family: jit`."""

    bottleneck: int = key(128, "channels between pixels and tokens", "loss clock", ge=1)
    class_tokens: int = key(
        32, "copies of the label's embedding that join the patches", "loss clock", ge=0
    )
    class_tokens_from: int = key(4, "blocks before they join, a third of depth", "loss clock", ge=0)


class Routing(KeyGroup):
    """In training, a share of the patches skips the middle blocks (docs/recipes.md)."""

    kind: Literal["none", "tread"] = key(
        "none",
        "tread: the patches are put back as they were before (Krause et al. 2025)",
        "loss clock",
    )
    drop: float = key(0.5, "share of the patches that skip blocks", "loss clock", gt=0, lt=1)
    before: int = key(2, "first blocks, which read all patches", "loss clock", ge=1)
    after: int = key(2, "last blocks, which read all patches", "loss clock", ge=0)

    def kept(self, patches: int) -> int:
        """Return how many of an image's `patches` the routed blocks read."""
        return patches - int(patches * self.drop)


class Model(KeyGroup):
    """A diffusion transformer (Peebles & Xie 2023) over square patches, a JiT or a U-Net."""

    family: Literal["dit", "jit", "unet"] = key(
        "dit",
        "dit: configured by the keys of model; jit: a transformer on pixels, by width, depth, "
        "heads, patch, mlp_ratio and model.jit; unet: by the keys of model.unet",
        "loss clock",
    )
    width: int = key(384, "hidden size", "loss clock", ge=8)
    depth: int = key(12, "number of blocks", "loss clock", ge=1)
    heads: int = key(6, "attention heads", "loss clock", ge=1)
    patch: int = key(2, "side of a patch", "loss clock", unit="px", ge=1, short="ps")
    mlp_ratio: float = key(4.0, "MLP width over hidden size", "loss clock", gt=0)
    mlp: Literal["gelu", "swiglu"] = key(
        "gelu", "MLP: GELU (tanh approximation), or SwiGLU (three matrices)", "loss clock",
        tags="dit",
    )  # fmt: skip
    conditioning: Literal["adaln", "adaln_single"] = key(
        "adaln",
        "how time and label enter: adaLN-zero in every block; or one modulation and a table per "
        "block (adaLN-single, Chen et al. 2023)",
        "loss clock",
        tags="dit",
    )
    registers: int = key(
        0, "learned tokens beside the patches (Darcet et al. 2023)", "loss clock", ge=0, tags="dit"
    )
    positions: Literal["rope", "sincos"] = key(
        "rope", "rope: rotary, in attention; sincos: added to the patches", "loss clock", tags="dit"
    )
    qk_norm: bool = key(True, "RMS norm of queries and keys", "loss clock", tags="dit")
    routing: Routing = Field(default_factory=Routing)
    jit: Jit = Field(default_factory=Jit)
    unet: Unet = Field(default_factory=Unet)
    init_from: str | None = key(
        None,
        "initial weights: an official DiT or JiT, or a run; null: random",
        "loss",
        path="either",
    )
    init_weights: Literal["ema", "model"] = key(
        "ema", "which weights of init_from to use if it holds both", "loss"
    )

    @model_validator(mode="after")
    def _heads_fit(self) -> "Model":
        for name, field in type(self).model_fields.items():
            extra = field.json_schema_extra
            if self.family == "dit" or not isinstance(extra, dict) or extra["tags"] != "dit":
                continue
            if getattr(self, name) != field.default:
                raise ValueError(f"model.{name} is for model.family dit: remove it")
        if self.family == "unet":
            return self
        if self.family == "jit" and self.jit.class_tokens_from >= self.depth:
            raise ValueError(
                f"model.jit.class_tokens_from {self.jit.class_tokens_from} leaves no block of "
                f"model.depth {self.depth}: lower it"
            )
        if self.width % self.heads:
            raise ValueError(
                f"model.width {self.width} is not a multiple of model.heads {self.heads}"
            )
        if self.positions == "rope" and (self.width // self.heads) % 4:
            raise ValueError(
                f"model.width / model.heads is {self.width // self.heads}: "
                "2D rotary positions need a multiple of 4"
            )
        if self.positions == "sincos" and self.width % 4:
            raise ValueError(
                f"model.width {self.width}: 2D sinusoidal positions need a multiple of 4"
            )
        return self

    def routed_blocks(self) -> range:
        """Return the numbers of the blocks that some patches skip in training."""
        first, last = self.routing.before, self.depth - self.routing.after
        return range(first, last) if self.routing.kind != "none" else range(0)

    def side_divisor(self) -> int:
        """Return the number of which the side of an image must be a multiple."""
        return 2 ** (len(self.unet.mults) - 1) if self.family == "unet" else self.patch
