"""The prediction target of the network, the distribution of t, and the weight of errors."""

from typing import Literal

from pydantic import model_validator

from configs.schema.key import KeyGroup, key


class Alignment(KeyGroup):
    """REPA (Yu et al. 2024): align the tokens of a block with the features of the latent store."""

    weight: float = key(
        0.0,
        "weight of the mean of -cos(projected token, feature); 0: off; 0.5 in the paper",
        "loss clock",
        ge=0,
        tags="term",
    )
    block: int = key(8, "block, from 1, whose tokens a projection aligns", "loss", ge=1)
    hidden: int = key(2048, "width of the projection, an MLP of three layers", "loss clock", ge=1)
    features: int = key(768, "channels of the stored features: 768 for DINOv2-B", "loss", ge=1)


class Objective(KeyGroup):
    """Rectified flow (Liu et al. 2022), or DDPM over 1,000 steps (Ho et al. 2020)."""

    kind: Literal["flow", "ddpm"] = key(
        "flow",
        "flow: v = noise - image at x = (1-t) image + t noise; ddpm: the noise, at steps 0..999",
        "loss",
    )
    prediction: Literal["eps", "x"] = key(
        "eps",
        "eps: the network predicts what `kind` says; x: the image, with flow's loss of v (Li & He "
        "2025)",
        "loss",
    )
    error: Literal["l2", "l1"] = key("l2", "squared or absolute error", "loss")
    timesteps: Literal["uniform", "logit_normal"] = key(
        "logit_normal", "distribution of t (Esser et al. 2024)", "loss"
    )
    logit_mean: float = key(0.0, "m of t = sigmoid(m + s n)", "loss")
    logit_std: float = key(1.0, "s of t = sigmoid(m + s n)", "loss", gt=0)
    label_dropout: float = key(
        0.1, "share of null labels, for classifier-free guidance", "loss", ge=0, lt=1
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> "Objective":
        if self.kind == "ddpm":
            if self.timesteps != "uniform":
                raise ValueError(
                    f"objective.timesteps {self.timesteps} is for flow; set uniform for ddpm"
                )
            if self.prediction == "x":
                raise ValueError("objective.prediction x is for flow; set eps for ddpm")
        return self
