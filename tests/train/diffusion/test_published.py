"""The term of `repa` and the prediction of images agree with published code."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from configs.errors import ConfigError
from tests.train.diffusion.test_objective import DDPM, config_of
from train.diffusion.alignment import alignment_error, make_projection
from train.diffusion.objective import DiffusionObjective

LATENT = ("data.source=latents", "data.path=store")
T = torch.tensor([0.02, 0.3, 0.6, 0.9])
LABEL = torch.tensor([0, 1, 2, 10])


def wave(*shape: int, rate: float) -> Tensor:
    """Numbers that any library computes alike, to compare with losses computed elsewhere."""
    values = np.sin(rate * np.arange(1, np.prod(shape) + 1))
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)


IMAGE, NOISE, OUTPUT = (wave(4, 3, 4, 4, rate=rate) for rate in (0.37, 0.91, 0.53))


class Fixed(nn.Module):
    """Stands in for a network whose output is known."""

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        return OUTPUT


def losses(*keys: str) -> Tensor:
    config = config_of(
        "data.source=dummy", "data.channels=3", "data.size=4", "model.depth=1", *keys
    )
    objective = DiffusionObjective(config, torch.device("cpu"))
    return objective.losses(Fixed(), IMAGE, NOISE, T, LABEL)


def test_the_velocity_has_the_error_of_lightningdit() -> None:
    # Source: Transport.training_losses of hustvl/LightningDiT on the same waves.
    error = [1.6428556442, 1.4153527021, 1.4118980169, 1.5799633265]
    torch.testing.assert_close(losses(), torch.tensor(error), rtol=1e-5, atol=0)


def test_the_alignment_error_of_a_projection_is_that_of_repa() -> None:
    # Source: SILoss of sihyun-yu/REPA, for its `build_mlp` with the same weights.
    keys = ["repa.hidden=7", "repa.features=8", "repa.weight=1", "repa.block=1"]
    config = config_of(*LATENT, *keys)
    narrow = config.model_copy(update={"model": config.model.model_copy(update={"width": 6})})
    projection = make_projection(narrow, torch.device("cpu"))
    for number, parameter in enumerate(projection.parameters(), start=1):
        parameter.data.copy_(wave(*parameter.shape, rate=0.1 * number))
    found = alignment_error(projection(wave(4, 5, 6, rate=0.71)), wave(4, 5, 8, rate=0.29))
    expected = torch.tensor([0.0025123148, -0.0249238461, -0.0489470921, -0.037843965])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)


def test_a_predicted_image_has_the_loss_of_jit() -> None:
    # Source: Denoiser.forward of LTH14/JiT at 1 - t.
    expected = torch.tensor([350.97897339, 11.733878136, 3.2312088013, 1.2215074301])
    found = losses("objective.prediction=x")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def test_samples_of_a_network_that_predicts_the_image_end_at_it() -> None:
    config = config_of("objective.prediction=x", "sample.guidance=1", "sample.steps=7")
    objective = DiffusionObjective(config, torch.device("cpu"))
    image = wave(2, 1, 8, 8, rate=0.3)
    drawn = objective.sample(lambda x, t, label: image, torch.randn(2, 1, 8, 8), LABEL[:2])
    torch.testing.assert_close(drawn, image)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([*DDPM, "objective.prediction=x"], "prediction x is for flow"),
        (["repa.weight=1"], "aligns a DiT with features of a latent store"),
        ([*LATENT, "repa.weight=1", "repa.block=9"], "repa.block 9 is beyond model.depth"),
        ([*LATENT, "repa.weight=1", "repa.block=1", "gns.enabled=true"], "trains a projection"),
        (
            [*LATENT, "repa.weight=1", "repa.block=2", "model.routing.kind=tread",
             "model.routing.before=1", "model.routing.after=1"],
            "aligns all patches",
        ),
    ],
)  # fmt: skip
def test_terms_that_cannot_be_combined_are_refused(keys: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(*keys)
