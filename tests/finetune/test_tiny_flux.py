"""The random Flux behaves like a real one where the engines differ."""

from pathlib import Path

import pytest
import torch

from finetune.native.encoders import load_vae

pytestmark = pytest.mark.xdist_group("flux")


@torch.no_grad()
def test_a_draw_from_its_posterior_is_the_mean_that_the_native_engine_takes(flux: Path) -> None:
    vae = load_vae(flux / "model", torch.device("cpu"), torch.float32)
    posterior = vae.encode(torch.rand(1, 3, 64, 64) * 2 - 1).latent_dist
    assert posterior.mode().std() > 1000 * posterior.std.max()
