"""Images drawn from Flux with a LoRA, timed."""

from typing import Literal

from pydantic import model_validator

from configs.schema.finetune import check_pictures
from configs.schema.key import key
from configs.schema.run import Run


class Infer(Run):
    """Images drawn from prompts with a fine-tuned Flux, in seconds per image.

    Of a fine-tuning `run` it takes everything that is null here; without one it needs a model
    `folder` and prompts, and draws with the file `lora` or with none.
    """

    kind: Literal["infer"] = key("infer", "what is run")
    run: str | None = key(None, "folder of a fine-tuning run", "loss", path="fine-tuning run")
    step: int | None = key(None, "step of the LoRA; null: the newest", "loss", ge=1)
    weights: Literal["ema", "model"] = key("ema", "the averaged LoRA, or the raw one", "loss")
    lora: str | None = key(None, "file of a LoRA, in place of the run's", "loss", path="file")
    lora_scale: float = key(1.0, "what the LoRA is multiplied by; 0 is the base", "loss", ge=0)
    folder: str | None = key(None, "model folder in diffusers layout", "loss", path="folder")
    variant: Literal["schnell", "dev"] | None = key(
        None, "which Flux it is; null: the run's, else schnell", "loss"
    )
    quantise: Literal["none", "int8", "float8"] | None = key(
        None, "how the weights of the base are held; null: as in the run, else none", "loss",
        "clock",
    )  # fmt: skip
    precision: Literal["bf16", "fp32"] | None = key(
        None, "of the base and the arithmetic; null: as in the run, else bf16", "loss", "clock"
    )
    prompts: list[str] = key([], "what is drawn; none: the run's", "loss")
    prompts_file: str | None = key(
        None, "file of prompts, one a line, in place of prompts", "loss", path="file"
    )
    trigger: str | None = key(None, "what [trigger] stands for; null: the run's", "loss")
    images: int = key(1, "images of each prompt, each from noise of its own", "clock", ge=1)
    width: int | None = key(None, "null: the run's, else 1024", "loss", "clock", unit="px", ge=16)
    height: int | None = key(None, "null: the run's, else 1024", "loss", "clock", unit="px", ge=16)
    steps: int | None = key(
        None, "steps of the sampler; null: the run's, else 4", "loss", "clock", ge=1
    )
    guidance: float | None = key(
        None, "distilled guidance, dev only; null: the run's, else 1", "loss", ge=0
    )
    seed: int = key(
        42, "image n of all is drawn from the noise of seed + n", "loss", ge=0, lt=2**31
    )
    warmup: int = key(1, "images drawn before those that are timed, and thrown away", "clock", ge=0)

    @model_validator(mode="after")
    def _parts_fit(self) -> "Infer":
        if self.run is None and self.folder is None:
            raise ValueError("name a fine-tuning run, such as run=logs/RUN, or a model folder")
        if self.run is None or self.prompts or self.prompts_file:
            check_pictures(self.prompts, self.prompts_file, self.width or 16, self.height or 16)
        return self
