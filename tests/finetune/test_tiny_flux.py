"""The tiny Flux behaves like a real one where the engines differ; that of the demo learns."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from finetune.native.encoders import load_vae
from tests.real_runs import clean_environment

pytestmark = pytest.mark.xdist_group("flux")


@torch.no_grad()
def test_a_draw_from_its_posterior_is_the_mean_that_the_native_engine_takes(flux: Path) -> None:
    vae = load_vae(flux / "model", torch.device("cpu"), torch.float32)
    posterior = vae.encode(torch.rand(1, 3, 64, 64) * 2 - 1).latent_dist
    assert posterior.mode().std() > 1000 * posterior.std.max()


@torch.no_grad()
def test_its_vae_draws_its_images(flux: Path) -> None:
    vae = load_vae(flux / "model", torch.device("cpu"), torch.float32)
    pixels = np.array(Image.open(flux / "images" / "00.png"))
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 127.5 - 1
    drawn = vae.decode(vae.encode(image).latent_dist.mode()).sample
    assert (drawn - image).abs().max() < 0.01


def test_a_command_begins_without_messages_of_libraries(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "finetune", "tiny", str(tmp_path / "flux")]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
    assert (done.stdout, done.stderr) == (f"{tmp_path / 'flux'}\n", "")


@pytest.mark.long
def test_the_demo_ends_with_images_like_those_of_training(tmp_path: Path) -> None:
    environment = clean_environment() | {"LOGS": str(tmp_path), "OMP_NUM_THREADS": "1"}
    subprocess.run(["jobs/demo-lora.sh"], check=True, env=environment)
    (demo,) = tmp_path.glob("demo-lora-*")
    (samples,) = demo.glob("tiny-*/samples")
    for prompt, image in enumerate(("00", "01", "04")):
        taught = np.array(Image.open(demo / "flux" / "images" / f"{image}.png"), float)
        drawn = [
            np.array(Image.open(samples / f"prompt-{prompt:02d}" / f"step-{step:09d}.png"), float)
            for step in (0, 400)
        ]
        before, after = (np.corrcoef(taught.ravel(), each.ravel())[0, 1] for each in drawn)
        assert before < 0.6 < 0.8 < after
    assert (demo / "report.html").is_file()
