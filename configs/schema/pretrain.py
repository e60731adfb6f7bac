"""Pretraining of a diffusion model under torchrun."""

from typing import Literal

from pydantic import Field, model_validator

from configs.schema.data import Data
from configs.schema.key import key
from configs.schema.model import Model, Objective
from configs.schema.run import Run
from configs.schema.training import Checkpoint, Layout, Optimizer, Sample, Train


class Pretrain(Run):
    """Pretraining of a diffusion model under torchrun."""

    kind: Literal["pretrain"] = key("pretrain", "what is run")
    seed: int = key(0, "seed of weights, order, noise and timesteps", "loss", ge=0, lt=2**63)
    model: Model = Field(default_factory=Model)
    data: Data = Field(default_factory=Data)
    objective: Objective = Field(default_factory=Objective)
    optimizer: Optimizer = Field(default_factory=Optimizer)
    train: Train = Field(default_factory=Train)
    layout: Layout = Field(default_factory=Layout)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    sample: Sample = Field(default_factory=Sample)

    def last_step(self) -> int:
        """The step at which it is done."""
        return self.train.steps

    @model_validator(mode="after")
    def _parts_fit(self) -> "Pretrain":
        if self.data.size % self.model.patch:
            raise ValueError(
                f"data.size {self.data.size} is not a multiple of model.patch {self.model.patch}"
            )
        return self
