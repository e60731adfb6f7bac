"""Pretraining of a diffusion model under torchrun."""

from collections.abc import Iterator
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
        for refusals in (self._network(), self._gradients(), self._alignment(), self._evaluation()):
            for refusal in refusals:
                raise ValueError(refusal)
        return self

    def _network(self) -> Iterator[str]:
        model, divisor = self.model, self.model.side_divisor()
        if self.data.size % divisor:
            is_unet = model.family == "unet"
            key = "2^(levels of model.unet.mults - 1)" if is_unet else "model.patch"
            yield f"data.size {self.data.size} is not a multiple of {key} {divisor}"
        if model.family == "unet":
            if self.layout.tensor > 1:
                yield "layout.tensor splits transformer blocks; a U-Net has none: set it to 1"
            if self.activation_checkpointing.mode != "none":
                yield "activation_checkpointing is for transformer blocks; a U-Net has none"
            if self.optimizer.kind == "muon":
                yield "optimizer.kind muon moves transformer blocks; a U-Net has none: set adamw"
        if model.routing.kind != "none":
            if model.family != "dit":
                yield "model.routing is for model.family dit: set its kind to none"
            if not model.routed_blocks():
                yield "model.routing.before and after leave no block of model.depth: lower them"

    def _gradients(self) -> Iterator[str]:
        if self.optimizer.kind == "muon" and self.layout.tensor > 1:
            yield "optimizer.kind muon needs whole matrices: set layout.tensor to 1"
        if self.gns.enabled and self.train.reduce == "bf16":
            yield "gns.enabled reads the gradients that ranks sum: set train.reduce to fp32"
        if self.gns.enabled and self.layout.tensor > 1:
            yield (
                "gns.enabled reads gradients before ranks sum them, but tensor parallelism splits "
                "them over ranks: set layout.tensor to 1, or gns.enabled to false"
            )

    def _alignment(self) -> Iterator[str]:
        if not self.repa.weight:
            return
        if self.data.source != "latents" or self.model.family != "dit":
            yield (
                "repa.weight aligns a DiT with features of a latent store: set data.source latents"
            )
        if self.repa.block > self.model.depth:
            yield f"repa.block {self.repa.block} is beyond model.depth {self.model.depth}"
        if self.repa.block in self.model.routed_blocks()[1:]:
            yield "repa.block aligns all patches: set it to a block that model.routing leaves out"
        if self.gns.enabled:
            yield "repa.weight trains a projection, which gns.enabled does not know: set it false"

    def _evaluation(self) -> Iterator[str]:
        fits = {"flow": ("euler", "heun"), "ddpm": ("ddim",)}[self.objective.kind]
        if self.sample.sampler not in fits:
            yield (
                f"sample.sampler {self.sample.sampler} does not sample objective.kind "
                f"{self.objective.kind}; set {' or '.join(fits)}"
            )
        if self.validation.every and not self.data.held_out:
            yield "validation.every needs held-out images: set data.held_out, such as 0.05"
        classifies = self.data.source == "digits" and self.data.held_out
        if self.evaluate.fid.every and not self.evaluate.fid.features and not classifies:
            yield "evaluate.fid.every needs evaluate.fid.features, but for held-out digits"
