"""Bad input is refused with the fix before any GPU is requested, and without loading torch."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from configs.checks.flux import missing, weight_files, weights_in
from configs.checks.lora import check_sizes
from configs.disk import read_safetensors_header
from configs.errors import ConfigError
from finetune.tiny_flux import make_tiny_flux
from launch.__main__ import main as launch
from runs.attempt.open import open_attempt
from runs.folder import find_runs
from tests.finetune.conftest import TINY, paths

pytestmark = [pytest.mark.xdist_group("flux"), pytest.mark.usefixtures("logs")]


@pytest.fixture
def own(flux: Path, tmp_path: Path) -> Path:
    """Return a copy of the tiny Flux to damage; runs would be made in `logs` beside it."""
    return Path(shutil.copytree(flux, tmp_path / "flux"))


def refusal(own: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        open_attempt(TINY, [*paths(own), *overrides], kind="finetune", gpus=1)
    assert not find_runs(own.parent / "logs")
    return str(caught.value)


def cut_weights(own: Path) -> None:
    file = own / "model" / "transformer" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def remove(name: str) -> Callable[[Path], None]:
    def remove_it(own: Path) -> None:
        path = own / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove_it


def write(name: str, content: bytes) -> Callable[[Path], None]:
    def write_it(own: Path) -> None:
        (own / name).write_bytes(content)

    return write_it


def cut_image(own: Path) -> None:
    file = own / "images" / "02.png"
    file.write_bytes(file.read_bytes()[:150])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (remove("model/transformer"), "missing: transformer/config.json, transformer/diffusion"),
        (remove("model/tokenizer"), "missing: tokenizer/tokenizer.json"),
        (remove("model"), "on a login node: hf download OWNER/model --local-dir"),
        (cut_weights, "cut short"),
        (write("model/transformer/config.json", b"{"), "not a JSON object"),
        (remove("images"), "no such folder; create it or name another"),
        (cut_image, "not a readable image"),
    ],
)
def test_input_that_would_fail_is_refused_before_a_run_is_made(
    spoil: Callable[[Path], None], message: str, own: Path
) -> None:
    spoil(own)
    assert message in refusal(own)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sample.prompts=[]", "sample.prompts is empty: list a prompt"),
        ("data.resolutions=[]", "must list at least one size"),
        ("data.resolutions=[8]", "none may be under data.bucket 16"),
        ("sample.width=33", "sample.width 33 is not a multiple of 16"),
        ("lora.targets=atention", "lora.targets: expected 'attention', 'attention+mlp'"),
        ("lora.kind=lokr", "removed; set aitoolkit.network.type"),
        ("data.trigger=null", "contains [trigger], but no trigger word is set; set data.trigger"),
        ("aitoolkit.train.noise_offset=0.1", "set engine=aitoolkit"),
    ],
)
def test_an_impossible_config_is_refused(override: str, message: str, own: Path) -> None:
    changes = override.split(" ") if override.count("=") > 1 else [override]
    assert message in refusal(own, "engine=embedded", *changes)


def assistant_refusal(own: Path, file: Path) -> str:
    return refusal(own, "engine=aitoolkit", f"flux.assistant_lora={file}")


def test_an_assistant_that_is_no_lora_of_this_model_is_refused(own: Path) -> None:
    file = own / "assistant.safetensors"
    assert "no such file" in assistant_refusal(own, file)
    file.write_bytes(b"x")
    assert "not a safetensors file" in assistant_refusal(own, file)
    hint = "a folder, but a file is expected; name the file in it, such as assistant.safetensors"
    assert hint in assistant_refusal(own, own)
    weights = own / "model" / "vae" / "diffusion_pytorch_model.safetensors"
    assert "is a matrix of a LoRA" in assistant_refusal(own, weights)
    save_file({"transformer.layers.0.attention.to_k.lora_A.weight": np.zeros((4, 8))}, file)
    message = assistant_refusal(own, file)
    assert "1 of 1 updates fit no layer of this model, such as" in message


def test_an_assistant_of_another_kind_of_model_is_refused_by_the_sizes_of_its_layers(
    own: Path,
) -> None:
    file = own / "assistant.safetensors"
    asked = ("aitoolkit.model.arch=any", "sample.steps=4", "sample.guidance=1.0")
    name = "diffusion_model.blocks.0.attention.to_k"
    down, up = f"{name}.lora_A.weight", f"{name}.lora_B.weight"
    save_file({down: np.zeros((4, 48)), up: np.zeros((48, 4))}, file)
    message = refusal(own, "engine=aitoolkit", *asked, f"flux.assistant_lora={file}")
    assert "has the size of a weight of this model, such as 48 x 48; name a LoRA" in message
    width = linear_size(own)
    save_file({down: np.zeros((4, width[1])), up: np.zeros((width[0], 4))}, file)
    check_sizes(file, weights_in(own / "model"))
    check_sizes(file, weights_in(own / "none"))


def linear_size(own: Path) -> tuple[int, ...]:
    """Return rows and columns of a linear layer of the tiny Flux."""
    (weights,) = weight_files(own / "model" / "transformer")
    tensors = read_safetensors_header(weights).tensors
    return next(one.shape for name, one in tensors.items() if name.endswith("to_k.weight"))


def edit_json(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    ("pipeline", "channels"), [("FluxPipeline", 384), ("FluxKontextPipeline", 64)]
)
def test_another_model_is_refused_by_its_pipeline(pipeline: str, channels: int, own: Path) -> None:
    edit_json(own / "model" / "model_index.json", _class_name=pipeline)
    edit_json(own / "model" / "transformer" / "config.json", in_channels=channels)
    assert f"a {pipeline} of {channels} channels; only FLUX.1-dev and" in refusal(own)


def test_a_single_file_is_to_be_converted(own: Path) -> None:
    file = own / "model" / "flux1-dev.safetensors"
    file.touch()
    shutil.rmtree(own / "model" / "transformer")
    assert "has all weights in flux1-dev.safetensors; convert it by" in refusal(own)
    message = refusal(own, f"flux.folder={file}")
    assert "a single file, but a folder is expected; convert it by" in message


def test_sharded_weights_are_found_through_their_index(own: Path) -> None:
    part = own / "model" / "transformer"
    whole = part / "diffusion_pytorch_model.safetensors"
    whole.rename(part / "a.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (part / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    assert missing(own / "model") == ["transformer/b.safetensors"]


def test_plan_names_files_that_a_node_would_have_to_fetch(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", str(TINY), *paths(own), "--script"]
    launch(words)
    assert "fail  data" not in capsys.readouterr().err
    shutil.rmtree(own / "model" / "text_encoder_2")
    assert launch(words) == 1
    lost = "missing: text_encoder_2/config.json, text_encoder_2/model.safetensors"
    assert lost in capsys.readouterr().err


def test_a_tiny_flux_is_not_made_in_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        make_tiny_flux(tmp_path)


def test_infer_needs_an_existing_lora(own: Path, trained: object) -> None:
    run = getattr(trained, "path")  # noqa: B009
    with pytest.raises(ConfigError, match=r"step 7: .* has no LoRA of it; it has 20, 40"):
        open_attempt(run, ["step=7"], kind="infer")
