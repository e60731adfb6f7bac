"""`infer` runs make the images of training again, and time each of them."""

import pytest
from PIL import Image

from analysis.read.run_folder import read_ours
from analysis.report.samples import series_of
from runs.folder import RunFolder
from tests.finetune.conftest import run_attempt

pytestmark = pytest.mark.xdist_group("flux")


def test_infer_makes_the_images_that_training_made_at_that_step(trained: RunFolder) -> None:
    run = run_attempt(trained.path, ["step=20"], kind="infer")
    for prompt in range(2):
        image = Image.open(run.samples / f"prompt-{prompt:02d}" / "image-0000.png")
        assert image.tobytes() == Image.open(trained.prompt_sample(prompt, 20)).tobytes()


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
    assert all(last[f"{name}_s"] >= 0 for name in ("load", "text", "warmup", "sample"))
    metadata = Image.open(run.samples / "prompt-00" / "image-0001.png").text  # type: ignore[attr-defined]
    assert metadata["prompt"] == "tiny subject at home"
    (shown,) = series_of(read_ours(run))
    assert dict(shown.drawing)["prompt"] == "tiny subject at home"
