"""Sampling of many images from a pretraining run, for FID and similar metrics."""

from typing import Literal

from configs.schema.key import key
from configs.schema.run import Run


class Sampling(Run):
    """Sample images from a checkpoint of a pretraining run under torchrun, into one .npz."""

    kind: Literal["sample"] = key("sample", "kind of run")
    seed: int = key(0, "seed of noise and random labels", "loss", ge=0, lt=2**63, tags="picture")
    run: str | None = key(
        None, "folder of the pretraining run", "loss", needed=True, path="pretraining run",
        tags="picture",
    )  # fmt: skip
    step: int | None = key(None, "step of the checkpoint; null: the newest", "loss", ge=1)
    weights: Literal["ema", "model"] = key(
        "ema", "averaged weights (ema) or raw ones (model)", "loss", tags="picture"
    )
    num: int = key(50_000, "number of images", "loss clock", ge=1, tags="picture")
    batch: int = key(
        64, "images that a rank samples, and saves, at once", "clock", ge=1, tags="picture"
    )
    labels: Literal["random", "turn"] = key(
        "random", "random: uniform by the seed, as in ADM; turn: the classes in turn", "loss",
        tags="picture",
    )  # fmt: skip
    sampler: Literal["euler", "heun", "ddim"] | None = key(
        None, "euler or heun for flow, ddim for ddpm; null: the run's", "loss clock",
        replaces="sample.sampler",
    )  # fmt: skip
    steps: int | None = key(
        None, "sampler steps; null: the run's", "loss clock", ge=1, replaces="sample.steps"
    )
    guidance: float | None = key(
        None, "scale of guidance, 1 is off; null: the run's", "loss clock", unit="scale",
        ge=1, replaces="sample.guidance",
    )  # fmt: skip
    guidance_low: float | None = key(
        None, "least t at which guidance acts; null: the run's", "loss clock", ge=0, le=1,
        replaces="sample.guidance_low",
    )  # fmt: skip
    guidance_high: float | None = key(
        None, "largest t at which guidance acts; null: the run's", "loss clock", ge=0, le=1,
        replaces="sample.guidance_high",
    )  # fmt: skip
    precision: Literal["fp32", "tf32", "bf16"] | None = key(
        None, "precision of the network, by autocast; null: the training's", "loss clock",
        replaces="train.precision",
    )  # fmt: skip
