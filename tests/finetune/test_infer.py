"""`infer` runs make the images of training again, and time each of them."""

import numpy as np
import pytest
from PIL import Image

from runs.folder import RunFolder
from tests.finetune.conftest import run_attempt

pytestmark = pytest.mark.xdist_group("flux")


def test_infer_makes_the_images_that_training_made_at_that_step(trained: RunFolder) -> None:
    run = run_attempt(trained.path, ["step=20"], kind="infer")
    for prompt in range(2):
        image = Image.open(run.samples / f"prompt-{prompt:02d}" / "image-0000.png")
        assert image.tobytes() == Image.open(trained.prompt_sample(prompt, 20)).tobytes()


@pytest.mark.parametrize("kind", ["int8", "float8"])
def test_an_8_bit_base_draws_about_the_same_images(kind: str, trained: RunFolder) -> None:
    changes = ["step=40", f"quantise={kind}", "warmup=0"]
    run = run_attempt(trained.path, changes, kind="infer")
    found, exact = (
        np.asarray(Image.open(file), dtype=float)
        for file in (run.samples / "prompt-00" / "image-0000.png", trained.prompt_sample(0, 40))
    )
    assert 0 < np.abs(found - exact).mean() < 0.1 * exact.std()


def test_infer_times_each_image_and_the_warm_up_apart(trained: RunFolder) -> None:
    changes = ["images=2", "warmup=1", 'prompts=["[trigger] at home"]', "lora_scale=0"]
    run = run_attempt(trained.path, changes, kind="infer")
    records = list(run.records())
    assert [record["image_s"] > 0 for record in records if "image_s" in record] == [True, True]
    assert [record["seed"] for record in records if "image_s" in record] == [42, 43]
    (first,) = [record for record in records if "first_image_s" in record]
    assert first["step"] == 0
    last = records[-1]
    assert last["event"] == "done"
    assert all(last[f"{name}_s"] >= 0 for name in ("load", "quantise", "text", "warmup", "sample"))
    metadata = Image.open(run.samples / "prompt-00" / "image-0001.png").text  # type: ignore[attr-defined]
    assert metadata["prompt"] == "tiny subject at home"
