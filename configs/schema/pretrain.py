"""Pretraining of a diffusion model under torchrun."""

from typing import Literal

from pydantic import Field, model_validator

from configs.schema import training
from configs.schema.data import Data
from configs.schema.gns import GradientNoise
from configs.schema.key import key
from configs.schema.model import Model
from configs.schema.objective import Alignment, Objective
from configs.schema.run import Run


class Pretrain(Run):
    """Pretraining of a diffusion model under torchrun."""

    kind: Literal["pretrain"] = key("pretrain", "kind of run")
    seed: int = key(
        0, "seed of weights, order of images, noise and timesteps", "loss", ge=0, lt=2**63,
        tags="picture", short="s",
    )  # fmt: skip
    model: Model = Field(default_factory=Model)
    data: Data = Field(default_factory=Data)
    objective: Objective = Field(default_factory=Objective)
    repa: Alignment = Field(default_factory=Alignment)
    optimizer: training.Optimizer = Field(default_factory=training.Optimizer)
    train: training.Train = Field(default_factory=training.Train)
    activation_checkpointing: training.ActivationCheckpointing = Field(
        default_factory=training.ActivationCheckpointing
    )
    layout: training.Layout = Field(default_factory=training.Layout)
    checkpoint: training.Checkpoint = Field(default_factory=training.Checkpoint)
    validation: training.Validation = Field(default_factory=training.Validation)
    evaluate: training.Evaluate = Field(default_factory=training.Evaluate)
    profile: training.Profile = Field(default_factory=training.Profile)
    sample: training.Sample = Field(default_factory=training.Sample)
    gns: GradientNoise = Field(default_factory=GradientNoise)

    def last_step(self) -> int:
        """Return the step at which the run is done."""
        return self.train.steps

    @model_validator(mode="after")
    def _parts_fit(self) -> "Pretrain":
        for refusal in (
            self._size(),
            self._unet(),
            self._optimizer(),
            self._reduce(),
            self._sampler(),
            self._validation(),
            self._alignment(),
            self._noise(),
            self._routing(),
        ):
            if refusal:
                raise ValueError(refusal)
        return self

    def _size(self) -> str | None:
        divisor = self.model.side_divisor()
        is_unet = self.model.family == "unet"
        key = "2^(levels of model.unet.mults - 1)" if is_unet else "model.patch"
        if self.data.size % divisor:
            return f"data.size {self.data.size} is not a multiple of {key} {divisor}"
        return None

    def _unet(self) -> str | None:
        if self.model.family != "unet":
            return None
        if self.layout.tensor > 1:
            return "layout.tensor splits transformer blocks; a U-Net has none: set it to 1"
        if self.activation_checkpointing.mode != "none":
            return "activation_checkpointing is for transformer blocks; a U-Net has none"
        return None

    def _optimizer(self) -> str | None:
        kind = self.optimizer.kind
        if kind == "muon" and self.model.family == "unet":
            return "optimizer.kind muon moves transformer blocks; a U-Net has none: set adamw"
        if kind == "muon" and self.layout.tensor > 1:
            return "optimizer.kind muon needs whole matrices: set layout.tensor to 1"
        return None

    def _reduce(self) -> str | None:
        if self.train.reduce == "bf16" and self.gns.enabled:
            return "gns.enabled reads the gradients that ranks sum: set train.reduce to fp32"
        return None

    def _sampler(self) -> str | None:
        fits = {"flow": ("euler", "heun"), "ddpm": ("ddim",)}[self.objective.kind]
        if self.sample.sampler not in fits:
            return (
                f"sample.sampler {self.sample.sampler} does not sample objective.kind "
                f"{self.objective.kind}; set {' or '.join(fits)}"
            )
        return None

    def _validation(self) -> str | None:
        if self.validation.every and not self.data.held_out:
            return "validation.every needs held-out images: set data.held_out, such as 0.05"
        classifies = self.data.source == "digits" and self.data.held_out
        if self.evaluate.fid.every and not self.evaluate.fid.features and not classifies:
            return "evaluate.fid.every needs evaluate.fid.features, but for held-out digits"
        return None

    def _alignment(self) -> str | None:
        if not self.repa.weight:
            return None
        if self.data.source != "latents" or self.model.family != "dit":
            return (
                "repa.weight aligns a DiT with features of a latent store: set data.source latents"
            )
        if self.repa.block > self.model.depth:
            return f"repa.block {self.repa.block} is beyond model.depth {self.model.depth}"
        if self.repa.block in self.model.routed_blocks()[1:]:
            return "repa.block aligns all patches: set it to a block that model.routing leaves out"
        if self.gns.enabled:
            return "repa.weight trains a projection, which gns.enabled does not know: set it false"
        return None

    def _noise(self) -> str | None:
        if self.gns.enabled and self.layout.tensor > 1:
            return (
                "gns.enabled reads gradients before ranks sum them, but tensor parallelism splits "
                "them over ranks: set layout.tensor to 1, or gns.enabled to false"
            )
        return None

    def _routing(self) -> str | None:
        model = self.model
        if model.routing.kind == "none":
            return None
        if model.family != "dit":
            return "model.routing is for model.family dit: set its kind to none"
        if not model.routed_blocks():
            return "model.routing.before and after leave no block of model.depth: lower them"
        return None
