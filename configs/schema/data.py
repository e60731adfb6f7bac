"""The images, or latents, that a run trains on."""

from typing import Literal

from pydantic import model_validator

from configs.schema.key import KeyGroup, key


class Data(KeyGroup):
    """A labelled data set, part of which can be held out from training."""

    source: Literal["digits", "cifar10", "folder", "latents", "dummy"] = key(
        "digits",
        "digits: scikit-learn's; cifar10: its binary form; folder: any images; "
        "latents: a store written by jobs/encode.sbatch; dummy: random latents",
        "loss clock",
        tags="picture",
    )
    path: str | None = key(
        None, "folder of the data set: for cifar10, folder and latents", "clock", path="folder",
        tags="picture",
    )  # fmt: skip
    vae: str | None = key(
        None, "VAE for sampled latents; null: the one that encoded them", free=True, path="folder"
    )
    size: int = key(
        8, "side of an image, or of a latent, after loading", "loss clock", unit="px", ge=1,
        tags="picture",
    )  # fmt: skip
    channels: int = key(
        1, "channels: 1, 3, or as many as the latents have", "loss clock", ge=1, tags="picture"
    )
    classes: int = key(10, "number of labels", "loss", ge=1)
    flip: bool = key(False, "mirror images at random, half of them", "loss")
    held_out: float = key(0.0, "share of the images held out for evaluation", "loss", ge=0, le=0.9)
    images: int = key(50_000, "number of images of the dummy data set", "loss", ge=1)
    workers: int = key(0, "loader processes per rank", "clock", free=True, ge=0)

    @model_validator(mode="after")
    def _path_fits(self) -> "Data":
        if self.source in ("cifar10", "folder", "latents") and self.path is None:
            raise ValueError(f"data.source {self.source} needs data.path, the folder of its data")
        if self.source in ("digits", "dummy") and self.path is not None:
            raise ValueError(f"data.source {self.source} takes no data.path: remove it")
        if self.source != "latents" and self.vae is not None:
            raise ValueError(f"data.source {self.source} takes no data.vae: remove it")
        known = {"digits": (8, 1, 10), "cifar10": (32, 3, 10)}.get(self.source)
        if known and known != (self.size, self.channels, self.classes):
            raise ValueError(
                f"data.source {self.source} has data.size {known[0]}, data.channels {known[1]} "
                f"and data.classes {known[2]}"
            )
        if self.source == "folder" and self.channels not in (1, 3):
            raise ValueError("data.source folder has data.channels 3, or 1 for grey images")
        return self
