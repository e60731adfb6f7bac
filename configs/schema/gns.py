"""The gradient noise scale: measured while training, and offline over saved checkpoints."""

from typing import Literal

from configs.schema.key import KeyGroup, key
from configs.schema.run import Run


class GradientNoise(KeyGroup):
    """The gradient noise measured during training (docs/gradient-noise.md)."""

    enabled: bool = key(
        False, "record |G|^2 and tr Sigma from the microbatches of every step", "clock", free=True
    )


class NoiseRun(Run):
    """The gradient noise scale of saved checkpoints, by bins of t, under torchrun."""

    kind: Literal["gns"] = key("gns", "kind of run")
    seed: int = key(0, "seed of images, noise and timesteps", "loss", ge=0, lt=2**63)
    run: str | None = key(
        None, "pretraining run whose checkpoints are measured", "loss", needed=True,
        path="pretraining run",
    )  # fmt: skip
    steps: list[int] | None = key(None, "saved steps of the run; null: all", "loss")
    weights: Literal["ema", "model"] = key(
        "model", "raw weights (model) or averaged ones (ema)", "loss"
    )
    bins: int | None = key(
        10, "equal bins of t, measured in addition to all of t; null: no bins", "loss", ge=2
    )
    batch: int = key(16, "b, images per microbatch", "loss clock", unit="images", ge=1)
    count: int = key(4, "K, microbatches per sample; the large batch is K b", "loss clock", ge=2)
    samples: int = key(20, "samples per bin and checkpoint", "loss clock", ge=1)
    share: float = key(1.0, "share of the training images to draw from", "loss", gt=0, le=1)
    precision: Literal["fp32", "bf16"] = key(
        "fp32", "precision of forward and backward, by autocast", "loss clock"
    )
