"""Many images drawn from a pretraining run, for FID and its like."""

from typing import Literal

from pydantic import model_validator

from configs.schema.key import key
from configs.schema.run import Run


class Sampling(Run):
    """Images drawn from a checkpoint of a pretraining run under torchrun, in one .npz."""

    kind: Literal["sample"] = key("sample", "what is run")
    seed: int = key(0, "seed of noise and random labels", "loss", ge=0, lt=2**63)
    run: str | None = key(None, "folder of the pretraining run", "loss", path="pretraining run")
    step: int | None = key(None, "step of the checkpoint; null: the newest", "loss", ge=1)
    weights: Literal["ema", "model"] = key("ema", "the averaged weights, or the raw ones", "loss")
    num: int = key(50_000, "images", "loss", "clock", ge=1)
    batch: int = key(64, "images that a rank draws at once, and keeps at once", "clock", ge=1)
    labels: Literal["random", "turn"] = key(
        "random", "drawn evenly by the seed, as ADM does; or the classes in turn", "loss"
    )
    sampler: Literal["euler", "heun", "ddim"] | None = key(
        None, "euler or heun for flow, ddim for ddpm; null: the run's own", "loss", "clock"
    )
    steps: int | None = key(
        None, "steps of the sampler; null: the run's own", "loss", "clock", ge=1
    )
    guidance: float | None = key(
        None,
        "classifier-free guidance, 1 is none; null: the run's own",
        "loss",
        "clock",
        unit="scale",
        ge=1,
    )
    precision: Literal["fp32", "bf16", "fp16"] | None = key(
        None, "of the network, by autocast; null: as the run was trained", "loss", "clock"
    )
    out: str | None = key(
        None, "a new .npz file; null: samples/ of this run's own folder", path="new"
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> "Sampling":
        if self.run is None:
            raise ValueError("run must name the folder of a pretraining run, such as run=logs/RUN")
        if self.out is not None and not self.out.endswith(".npz"):
            raise ValueError(f"out {self.out}: name a file that ends in .npz")
        return self
