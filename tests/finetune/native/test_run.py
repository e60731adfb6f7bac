"""The native engine learns, reproduces, resumes exactly, and writes files that others read."""

import hashlib
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline
from PIL import Image
from safetensors.torch import load_file

from runs.folder import RunFolder
from tests.finetune.conftest import TrainLora, run_attempt
from tests.real_runs import events, losses

# One worker runs these tests, because they share a Flux and its runs.
pytestmark = pytest.mark.xdist_group("flux")


def lora(run: RunFolder, step: int = 40) -> Path:
    return run.lora / f"step-{step:09d}.safetensors"


def evaluations(run: RunFolder) -> list[dict[str, float]]:
    return [record for record in run.records() if "validation_loss" in record]


def sample(pipeline: FluxPipeline) -> np.ndarray:
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


def test_the_loss_at_fixed_noises_falls_below_that_without_a_lora_by_more_than_its_interval(
    trained: RunFolder,
) -> None:
    first, *_, last = evaluations(trained)
    assert first["validation_gain"] == 0
    assert first["validation_loss"] == first["validation_loss_zero"]
    assert last["validation_loss_zero"] == first["validation_loss_zero"]
    assert last["validation_gain"] > last["validation_gain_95"] > 0
    difference = last["validation_loss_zero"] - last["validation_loss"]
    assert last["validation_gain"] == pytest.approx(difference)


def test_a_run_records_its_events_steps_and_clocks(trained: RunFolder) -> None:
    both = ["saved", "evaluated"]
    assert events(trained) == ["started", "evaluated", *both, *both, "done"]
    assert sorted(losses(trained)) == list(range(1, 41))
    last = [record for record in trained.records() if "loss" in record][-1]
    assert last["images"] == 160
    clocks = ["setup", "load", "cache", "train", "data", "save", "sample", "eval"]
    assert all(last[f"{name}_s"] >= 0 for name in clocks)
    samples = [record for record in trained.records() if "drawn_images" in record]
    assert [(record["step"], record["drawn_images"]) for record in samples] == [
        (0, 2),
        (20, 2),
        (40, 2),
    ]
    assert all(0 < record["first_image_s"] < record["drawn_s"] for record in samples)
    (entry,) = trained.manifest()["attempts"]
    assert entry["engine"] == "embedded"
    assert entry["versions"]["peft"]


def test_a_rerun_is_identical_to_the_bit(trained: RunFolder, train_lora: TrainLora) -> None:
    again = train_lora()
    assert losses(again) == losses(trained)
    assert sha256(lora(again)) != sha256(lora(trained)), "the file names its run"
    tensors, others = load_file(lora(trained)), load_file(lora(again))
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    image = Image.open(trained.prompt_sample(0, 40)).tobytes()
    assert Image.open(again.prompt_sample(0, 40)).tobytes() == image


def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(
    trained: RunFolder, train_lora: TrainLora
) -> None:
    half = train_lora("train.steps=17")
    whole = train_lora("train.steps=40", resumes=half)
    assert [record["step"] for record in whole.records() if record.get("event") == "started"] == [
        0,
        17,
    ]
    assert losses(whole) == losses(trained)
    tensors, others = (
        load_file(run.lora / "step-000000040.safetensors") for run in (trained, whole)
    )
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    assert evaluations(whole)[-1]["validation_loss"] == evaluations(trained)[-1]["validation_loss"]


def test_a_resumed_run_evaluates_the_same_images_held_out(train_lora: TrainLora) -> None:
    keys = ("validation.held_out=2", "train.steps=8")
    whole = train_lora(*keys)
    half = train_lora(*keys, "train.steps=3")
    assert losses(train_lora("train.steps=8", resumes=half)) == losses(whole)
    (entry,) = whole.manifest()["attempts"]
    assert (entry["images_in_set"], entry["images_held_out"]) == (3, 2)
    first, *_, last = evaluations(whole)
    assert first["held_out_gain"] == 0
    assert last["held_out_loss_zero"] == first["held_out_loss_zero"] != last["held_out_loss"]
    assert last["held_out_gain_95"] > 0
    assert first["held_out_loss"] != first["validation_loss"]


def test_captions_are_dropped_as_often_as_asked(train_lora: TrainLora, trained: RunFolder) -> None:
    run = train_lora("data.caption_dropout=1.0", "train.steps=1")
    assert losses(run)[1] != losses(trained)[1]


def test_the_lora_loads_into_a_pipeline_and_changes_its_images(
    trained: RunFolder, flux: Path
) -> None:
    pipeline = FluxPipeline.from_pretrained(flux / "model", local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    base = sample(pipeline)
    assert np.array_equal(sample(pipeline), base)
    pipeline.load_lora_weights(str(lora(trained)))
    with_lora = sample(pipeline)
    assert np.abs(with_lora - base).max() > 0.01
    assert np.array_equal(sample(pipeline), with_lora)
    pipeline.unload_lora_weights()
    assert np.array_equal(sample(pipeline), base)


def test_samples_are_made_before_during_and_after_training_and_carry_metadata(
    trained: RunFolder,
) -> None:
    names = ["step-000000000.png", "step-000000020.png", "step-000000040.png"]
    for prompt, text in enumerate(["tiny subject on a beach", "a drawing of tiny subject"]):
        folder = trained.samples / f"prompt-{prompt:02d}"
        assert sorted(file.name for file in folder.iterdir()) == names
        metadata = Image.open(folder / names[1]).text  # type: ignore[attr-defined]
        expected = {"run": trained.name, "step": "20", "prompt": text, "seed": str(42 + prompt)}
        assert metadata == expected


def test_bf16_and_no_recomputation_train_to_about_the_same_loss(
    trained: RunFolder, train_lora: TrainLora
) -> None:
    exact = losses(trained)
    whole = losses(train_lora("train.gradient_checkpointing=false", "train.steps=5"))
    assert whole == pytest.approx({step: exact[step] for step in whole}, rel=1e-6)
    half = losses(train_lora("train.precision=bf16", "train.steps=5"))
    assert half == pytest.approx({step: exact[step] for step in half}, rel=0.01)


def test_accumulation_trains_like_the_whole_batch(
    trained: RunFolder, train_lora: TrainLora
) -> None:
    exact = losses(trained)
    parts = losses(train_lora("train.micro_batch=1", "train.steps=5"))
    assert parts == pytest.approx({step: exact[step] for step in parts}, rel=1e-5)


def test_dev_takes_guidance_and_trains(train_lora: TrainLora, flux: Path, tmp_path: Path) -> None:
    from finetune.tiny_flux import SIZES, save_model

    save_model(tmp_path / "dev", SIZES["tiny"], variant="dev")
    run = train_lora(
        f"flux.folder={tmp_path / 'dev'}",
        "train.steps=2",
        "sample.guidance=3.5",
    )
    assert events(run)[-1] == "done"


def test_no_address_outside_this_machine_is_looked_up(
    train_lora: TrainLora, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[object] = []
    getaddrinfo = socket.getaddrinfo

    def record(host: object, *args: Any, **kwargs: Any) -> Any:
        hosts.append(host)
        return getaddrinfo(host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", record)
    run = train_lora("train.steps=1")
    run_attempt(run.path, [], kind="infer")
    local = {None, "localhost", "127.0.0.1", "::1", socket.gethostname()}
    assert set(hosts) <= local


@pytest.mark.parametrize(("stop_request", "event"), [("PAUSE", "paused"), ("STOP", "stopped")])
def test_a_stop_request_before_the_first_step_is_followed(
    stop_request: str, event: str, train_lora: TrainLora
) -> None:
    run = train_lora(stop_request=stop_request)
    assert events(run) == ["started", "evaluated", event]
    assert not losses(run)
