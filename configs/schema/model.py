"""The network that is trained and the objective that it is trained on."""

from typing import Literal

from pydantic import model_validator

from configs.schema.key import Group, key


class Model(Group):
    """A diffusion transformer (Peebles & Xie 2023): adaLN-zero blocks over square patches."""

    width: int = key(384, "hidden size", "loss", "clock", ge=8)
    depth: int = key(12, "number of blocks", "loss", "clock", ge=1)
    heads: int = key(6, "attention heads", "loss", "clock", ge=1)
    patch: int = key(2, "side of a patch", "loss", "clock", unit="px", ge=1)
    mlp_ratio: float = key(4.0, "MLP width over hidden size", "loss", "clock", gt=0)
    qk_norm: bool = key(True, "RMS norm on queries and keys", "loss", "clock")

    @model_validator(mode="after")
    def _heads_fit(self) -> "Model":
        if self.width % self.heads:
            raise ValueError(
                f"model.width {self.width} is not a multiple of model.heads {self.heads}"
            )
        if (self.width // self.heads) % 4:
            raise ValueError(
                f"model.width / model.heads is {self.width // self.heads}: "
                "2D rotary positions need a multiple of 4"
            )
        return self


class Objective(Group):
    """What the network learns: rectified flow, v = noise - image at x_t = (1-t) image + t noise."""

    timesteps: Literal["uniform", "logit_normal"] = key(
        "logit_normal", "density that t is drawn from", "loss"
    )
    logit_mean: float = key(0.0, "m of t = sigmoid(m + s n)", "loss")
    logit_std: float = key(1.0, "s of t = sigmoid(m + s n)", "loss", gt=0)
    label_dropout: float = key(
        0.1, "share of labels replaced by the null label, for guidance", "loss", ge=0, lt=1
    )
