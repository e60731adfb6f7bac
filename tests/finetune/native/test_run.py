"""The embedded engine learns, repeats itself, resumes exactly, and writes what others read."""

import hashlib
import io
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline
from PIL import Image
from safetensors.torch import load_file

from configs.run.folder import RunFolder
from tests.finetune.conftest import Tune, carry_out
from tests.real_runs import events, losses

# One worker makes the Flux and the runs that these tests share.
pytestmark = pytest.mark.xdist_group("flux")


def lora(run: RunFolder, step: int = 40) -> Path:
    return run.lora / f"step-{step:09d}.safetensors"


def evaluations(run: RunFolder) -> list[dict[str, float]]:
    return [record for record in run.records() if "validation_loss" in record]


def drawn(pipeline: FluxPipeline) -> np.ndarray:
    image = pipeline(
        "tiny subject on a beach",
        height=32,
        width=32,
        num_inference_steps=2,
        guidance_scale=1.0,
        max_sequence_length=256,
        generator=torch.Generator().manual_seed(0),
        output_type="np",
    )
    return np.asarray(image.images[0])


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_the_loss_on_fixed_strata_ends_below_that_of_no_lora_by_more_than_its_interval(
    tuned: RunFolder,
) -> None:
    first, *_, last = evaluations(tuned)
    assert first["validation_gain"] == 0
    assert first["validation_loss"] == first["validation_loss_zero"]
    assert last["validation_loss_zero"] == first["validation_loss_zero"]
    assert last["validation_gain"] > last["validation_gain_95"] > 0
    said = last["validation_loss_zero"] - last["validation_loss"]
    assert last["validation_gain"] == pytest.approx(said)


def test_a_run_records_its_events_steps_and_clocks(tuned: RunFolder) -> None:
    both = ["saved", "evaluated"]
    assert events(tuned) == ["started", "evaluated", *both, *both, "done"]
    assert sorted(losses(tuned)) == list(range(1, 41))
    last = [record for record in tuned.records() if "loss" in record][-1]
    assert last["images"] == 160
    clocks = ["setup", "load", "quantise", "cache", "train", "data", "save", "sample", "eval"]
    assert all(last[f"{name}_s"] >= 0 for name in clocks)
    drawn = [record for record in tuned.records() if "drawn_images" in record]
    assert [(record["step"], record["drawn_images"]) for record in drawn] == [
        (0, 2),
        (20, 2),
        (40, 2),
    ]
    assert all(0 < record["first_image_s"] < record["drawn_s"] for record in drawn)
    (entry,) = tuned.manifest()["attempts"]
    assert entry["engine"] == "embedded"
    assert entry["versions"]["peft"]


def test_a_rerun_is_identical_to_the_bit(tuned: RunFolder, tune: Tune) -> None:
    again = tune()
    assert losses(again) == losses(tuned)
    assert sha256(lora(again)) != sha256(lora(tuned)), "the file names its run"
    tensors, others = load_file(lora(tuned)), load_file(lora(again))
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    image = Image.open(tuned.prompt_sample(0, 40)).tobytes()
    assert Image.open(again.prompt_sample(0, 40)).tobytes() == image


def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(tuned: RunFolder, tune: Tune) -> None:
    half = tune("train.steps=17")
    whole = tune("train.steps=40", resumes=half)
    assert [record["step"] for record in whole.records() if record.get("event") == "started"] == [
        0,
        17,
    ]
    assert losses(whole) == losses(tuned)
    for folder in (tuned.lora, tuned.lora / "raw"):
        tensors = load_file(folder / "step-000000040.safetensors")
        others = load_file(
            whole.lora / folder.relative_to(tuned.lora) / "step-000000040.safetensors"
        )
        assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    assert evaluations(whole)[-1]["validation_loss"] == evaluations(tuned)[-1]["validation_loss"]


def test_the_lora_loads_into_a_pipeline_and_changes_what_it_draws(
    tuned: RunFolder, flux: Path
) -> None:
    pipeline = FluxPipeline.from_pretrained(flux / "model", local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    base = drawn(pipeline)
    assert np.array_equal(drawn(pipeline), base)
    pipeline.load_lora_weights(str(lora(tuned)))
    with_lora = drawn(pipeline)
    assert np.abs(with_lora - base).max() > 0.01
    assert np.array_equal(drawn(pipeline), with_lora)
    pipeline.unload_lora_weights()
    assert np.array_equal(drawn(pipeline), base)


def test_the_lora_tunes_the_projections_that_were_asked_for(tuned: RunFolder, tune: Tune) -> None:
    some = tune("train.steps=1", "lora.targets=attention", "lora.rank=2", "lora.alpha=8")
    tensors, whole = load_file(lora(some, 1)), load_file(lora(tuned))
    assert set(tensors) < set(whole)
    assert all(".attn." in name for name in tensors)
    assert any(".proj_mlp." in name for name in whole)
    assert {tensor.shape[0] for name, tensor in tensors.items() if ".lora_A." in name} == {2}


def test_alpha_is_in_the_file_so_that_no_reader_needs_to_know_it(tune: Tune) -> None:
    """B of the file is B of the checkpoint times alpha / rank, and A is A."""
    run = tune("train.steps=2", "train.ema_decay=null", "lora.rank=2", "lora.alpha=8")
    one = tune("train.steps=2", "train.ema_decay=null", "lora.rank=2", "lora.alpha=2")
    tensors, others = load_file(lora(run, 2)), load_file(lora(one, 2))
    changes = [tensors[name].norm() / others[name].norm() for name in tensors if "lora_B" in name]
    # Adam moves each element by about lr whatever the scale: what differs is the scale itself.
    assert torch.stack(changes).median().item() == pytest.approx(4, rel=0.05)


def test_files_hold_the_average_and_raw_ones_the_weights_themselves(tuned: RunFolder) -> None:
    average, raw = (
        load_file(folder / "step-000000040.safetensors")
        for folder in (
            tuned.lora,
            tuned.lora / "raw",
        )
    )
    moved = {name: tensor.norm() for name, tensor in average.items() if ".lora_B." in name}
    assert all(0 < norm < raw[name].norm() for name, norm in moved.items())


def test_samples_are_drawn_before_on_the_way_and_after_and_say_what_they_are(
    tuned: RunFolder,
) -> None:
    names = ["step-000000000.png", "step-000000020.png", "step-000000040.png"]
    assert sorted(file.name for file in tuned.samples.glob("*.png")) == names
    for prompt, text in enumerate(["tiny subject on a beach", "a drawing of tiny subject"]):
        folder = tuned.samples / f"prompt-{prompt:02d}"
        assert sorted(file.name for file in folder.iterdir()) == names
        said = Image.open(folder / names[1]).text  # type: ignore[attr-defined]
        expected = {"run": tuned.name, "step": "20", "prompt": text, "seed": str(42 + prompt)}
        assert said == expected


def test_the_assistant_is_on_in_training_and_off_in_samples(
    tuned: RunFolder, tune: Tune, flux: Path
) -> None:
    without = tune("flux.assistant_lora=null", "train.steps=1")
    assert losses(without)[1] != losses(tuned)[1]
    first = [Image.open(run.prompt_sample(0, 0)).tobytes() for run in (without, tuned)]
    assert first[0] == first[1]


@pytest.mark.parametrize("kind", ["int8", "float8"])
def test_a_quantised_base_trains_to_about_the_same_loss(
    kind: str, tuned: RunFolder, tune: Tune
) -> None:
    run = tune(f"flux.quantise={kind}", "train.steps=20")
    exact, found = losses(tuned), losses(run)
    assert found[1] != exact[1]
    assert all(found[step] == pytest.approx(exact[step], rel=0.01) for step in found)
    assert run.manifest()["attempts"][0]["dtypes"]["base"] == kind


def test_bf16_and_no_recomputation_train_to_about_the_same_loss(
    tuned: RunFolder, tune: Tune
) -> None:
    exact = losses(tuned)
    whole = losses(tune("train.gradient_checkpointing=false", "train.steps=5"))
    assert whole == pytest.approx({step: exact[step] for step in whole}, rel=1e-6)
    half = losses(tune("train.precision=bf16", "train.steps=5"))
    assert half == pytest.approx({step: exact[step] for step in half}, rel=0.01)


def test_accumulation_is_the_whole_batch_in_parts(tuned: RunFolder, tune: Tune) -> None:
    exact = losses(tuned)
    parts = losses(tune("train.micro_batch=1", "train.steps=5"))
    assert parts == pytest.approx({step: exact[step] for step in parts}, rel=1e-5)


def test_dev_takes_guidance_and_trains(tune: Tune, flux: Path, tmp_path: Path) -> None:
    from finetune.tiny_flux import SHAPES, save_model

    save_model(tmp_path / "dev", SHAPES["tiny"], variant="dev")
    run = tune(
        f"flux.folder={tmp_path / 'dev'}",
        "flux.variant=dev",
        "flux.assistant_lora=null",
        "train.steps=2",
        "train.timesteps=shift",
        "sample.guidance=3.5",
    )
    assert events(run)[-1] == "done"


def test_no_address_outside_this_machine_is_looked_up(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    look_up = socket.getaddrinfo

    def noted(host: object, *rest: Any, **more: Any) -> Any:
        asked.append(host)
        return look_up(host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    run = tune("train.steps=1")
    carry_out(run.path, [], kind="infer")
    here = {None, "localhost", "127.0.0.1", "::1", socket.gethostname()}
    assert set(asked) <= here


def test_8_bit_moments_without_cuda_are_refused_with_the_mend(tune: Tune) -> None:
    if torch.cuda.is_available():
        pytest.skip("CUDA is here")
    run = tune("optimizer.kind=adamw8bit", "resources.gpus_per_node=1")
    (failed,) = [record for record in run.records() if record.get("event") == "failed"]
    assert failed["reason"] == "config"
    assert "set optimizer.kind=adamw" in failed["message"]


@pytest.mark.parametrize(("stop_request", "event"), [("PAUSE", "paused"), ("STOP", "stopped")])
def test_a_wish_that_comes_before_the_first_step_is_heard(
    stop_request: str, event: str, tune: Tune
) -> None:
    run = tune(stop_request=stop_request)
    assert events(run) == ["started", "evaluated", event]
    assert not losses(run)


def test_samples_that_an_attempt_was_killed_before_are_drawn_by_the_next(
    tuned: RunFolder, tune: Tune, tmp_path: Path
) -> None:
    copy = RunFolder(Path(shutil.copytree(tuned.path, tmp_path / "copy")))
    expected = copy.prompt_sample(1, 40).read_bytes()
    records = copy.metrics_file.read_text().splitlines(keepends=True)
    copy.metrics_file.write_text("".join(line for line in records if '"done"' not in line))
    (copy.samples / "step-000000040.png").unlink()
    shutil.rmtree(copy.prompt_sample(1, 40).parent)
    tune(resumes=copy)
    found = Image.open(copy.prompt_sample(1, 40))
    assert found.tobytes() == Image.open(io.BytesIO(expected)).tobytes()
    assert events(copy)[-3:] == ["started", "evaluated", "done"]


def test_infer_draws_what_training_drew_at_that_step(tuned: RunFolder, tune: Tune) -> None:
    run = carry_out(tuned.path, ["step=20"], kind="infer")
    for prompt in range(2):
        image = Image.open(run.samples / f"prompt-{prompt:02d}" / "image-0000.png")
        assert image.tobytes() == Image.open(tuned.prompt_sample(prompt, 20)).tobytes()


def test_infer_times_each_image_and_the_first_apart(tuned: RunFolder, tune: Tune) -> None:
    changes = ["images=2", "warmup=1", 'prompts=["[trigger] at home"]', "lora_scale=0"]
    run = carry_out(tuned.path, changes, kind="infer")
    records = list(run.records())
    assert [record["image_s"] > 0 for record in records if "image_s" in record] == [True, True]
    assert [record["seed"] for record in records if "image_s" in record] == [42, 43]
    (first,) = [record for record in records if "first_image_s" in record]
    assert first["step"] == 0
    last = records[-1]
    assert last["event"] == "done"
    assert all(last[f"{name}_s"] >= 0 for name in ("load", "quantise", "text", "warmup", "sample"))
    said = Image.open(run.samples / "prompt-00" / "image-0001.png").text  # type: ignore[attr-defined]
    assert said["prompt"] == "tiny subject at home"
