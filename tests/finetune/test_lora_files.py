"""LoRA files keep what they do: merged, and in the keys of other programs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline, FluxTransformer2DModel
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import load_file, save_file

from configs.errors import ConfigError
from finetune.lora_files import compare, convert, main, read_updates
from runs.folder import RunFolder
from tests.finetune.conftest import TrainLora
from tests.finetune.native.test_lora import output

pytestmark = pytest.mark.xdist_group("flux")
QKV = ("attn.to_q", "attn.to_k", "attn.to_v")


def trained_file(run: RunFolder) -> Path:
    return sorted(run.lora.glob("step-*.safetensors"))[-1]


def transformer(folder: Path) -> FluxTransformer2DModel:
    return FluxTransformer2DModel.from_pretrained(folder / "transformer").eval()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a LoRA of the shapes of one block of each kind of a FLUX.1, with two ranks."""
    sizes = {"attn.to_out.0": (3072, 3072), "ff.net.0.proj": (3072, 12288)}
    sizes |= {"norm1.linear": (3072, 18432), **dict.fromkeys(QKV, (3072, 3072))}
    single = {**dict.fromkeys(QKV, (3072, 3072)), "proj_mlp": (3072, 12288)}
    single["proj_out"] = (15360, 3072)
    tensors = {}
    generator = torch.Generator().manual_seed(0)
    for block, layers in (("transformer_blocks.3", sizes), ("single_transformer_blocks.7", single)):
        for layer, (inputs, outputs) in layers.items():
            rank = 2 if layer == "attn.to_k" else 3
            name = f"transformer.{block}.{layer}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(rank, inputs, generator=generator)
            tensors[f"{name}.lora_B.weight"] = torch.randn(outputs, rank, generator=generator)
    file = tmp_path_factory.mktemp("real") / "lora.safetensors"
    save_file(tensors, file, metadata={"modelspec.title": "mine"})
    return file


@pytest.mark.parametrize("to", ["kohya", "comfyui"])
def test_a_converted_file_loads_by_diffusers_to_the_same_updates(
    to: str, real: Path, tmp_path: Path
) -> None:
    convert(real, tmp_path / "out.safetensors", to=to)
    keys = load_file(tmp_path / "out.safetensors")
    name = {
        "kohya": "lora_unet_double_blocks_3_img_attn_qkv.lora_down.weight",
        "comfyui": "diffusion_model.single_blocks.7.linear1.lora_up.weight",
    }[to]
    assert name in keys
    expected, found = load_file(real), FluxPipeline.lora_state_dict(tmp_path / "out.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        # A rank below that of the layers that it is joined with is filled up with zeros.
        whole = found[name] if ".lora_A." in name else found[name].T
        mine = tensor if ".lora_A." in name else tensor.T
        assert torch.equal(whole[: mine.shape[0]], mine)
        assert not whole[mine.shape[0] :].any()
    convert(tmp_path / "out.safetensors", tmp_path / "back.safetensors", to="diffusers")
    assert [row["cosine"] for row in compare(real, tmp_path / "back.safetensors")] == [
        pytest.approx(1)
    ] * 12
    with pytest.raises(ConfigError, match="exists already"):
        main(["convert", str(real), str(tmp_path / "out.safetensors"), "--to", to])


def test_one_of_several_joined_layers_is_converted_alone(tmp_path: Path) -> None:
    layer = "transformer.single_transformer_blocks.0.proj_mlp"
    tensors = {f"{layer}.lora_A.weight": torch.randn(2, 3072)}
    tensors[f"{layer}.lora_B.weight"] = torch.randn(12288, 2)
    save_file(tensors, tmp_path / "one.safetensors")
    convert(tmp_path / "one.safetensors", tmp_path / "kohya.safetensors", to="kohya")
    (found,) = read_updates(tmp_path / "kohya.safetensors").items()
    assert found[0] == layer.removeprefix("transformer.")
    assert torch.equal(found[1][1], tensors[f"{layer}.lora_B.weight"])


def peft_file(flux: Path, folder: Path, **settings: bool) -> Path:
    """Write a LoRA of rank 2 with alpha 8, as diffusers saves it, with random matrices."""
    network = transformer(flux / "model")
    network.add_adapter(
        LoraConfig(r=2, lora_alpha=8, target_modules=["to_q", "proj_mlp"], **settings)
    )
    generator = torch.Generator().manual_seed(0)
    for name, parameter in network.named_parameters():
        if ".lora_" in name:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    FluxPipeline.save_lora_weights(
        folder,
        transformer_lora_layers=get_peft_model_state_dict(network, adapter_name="default"),
        transformer_lora_adapter_metadata=network.peft_config["default"].to_dict(),
    )
    return folder / "pytorch_lora_weights.safetensors"


@pytest.mark.parametrize("kind", ["trained", "scaled", "dora"])
def test_a_merged_model_computes_what_the_lora_beside_it_does(
    kind: str, trained: RunFolder, flux: Path, tmp_path: Path
) -> None:
    file, merged = trained_file(trained), tmp_path / "merged"
    if kind != "trained":
        file = peft_file(flux, tmp_path, use_dora=kind == "dora")
    assert main(["merge", str(flux / "model"), str(file), str(merged)]) == 0
    beside = FluxPipeline.from_pretrained(flux / "model")
    base = output(beside.transformer)
    beside.load_lora_weights(str(file))
    found = output(transformer(merged))
    assert torch.allclose(found, output(beside.transformer), atol=1e-5)
    assert not torch.allclose(found, base, atol=1e-4)
    pipeline = FluxPipeline.from_pretrained(merged, local_files_only=True)
    assert pipeline.text_encoder_2 is not None


def test_the_scale_in_the_metadata_of_diffusers_is_multiplied_into_a_converted_file(
    flux: Path, tmp_path: Path
) -> None:
    file = peft_file(flux, tmp_path)
    convert(file, tmp_path / "out.safetensors", to="diffusers")
    layer = "transformer.transformer_blocks.0.attn.to_q.lora_B.weight"
    before, after = (load_file(each)[layer] for each in (file, tmp_path / "out.safetensors"))
    assert torch.equal(after, 4 * before)
    outputs = []
    for each in (file, tmp_path / "out.safetensors"):
        pipeline = FluxPipeline.from_pretrained(flux / "model")
        pipeline.load_lora_weights(str(each))
        outputs.append(output(pipeline.transformer))
    assert torch.allclose(*outputs, atol=1e-5)
    rows = compare(file, tmp_path / "out.safetensors")
    assert all(row["norm"] == pytest.approx(row["norm_other"]) for row in rows)


def test_a_lora_that_fits_no_layer_is_not_merged(real: Path, flux: Path, tmp_path: Path) -> None:
    """The tiny Flux has no block 3 and no single block 7."""
    with pytest.raises(ConfigError, match="11 of 11 updates fit no layer of this model"):
        main(["merge", str(flux / "model"), str(real), str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    (tmp_path / "x.jpg").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"x\.jpg: not a safetensors file"):
        main(["merge", str(flux / "model"), str(tmp_path / "x.jpg"), str(tmp_path / "out")])


def test_norms_and_cosines_are_those_of_the_whole_matrices(
    trained: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [run / trained_file(trained).name for run in (trained.lora, trained.lora / "raw")]
    rows = {row["layer"]: row for row in compare(*files)}
    one, other = (read_updates(file) for file in files)
    for layer, row in rows.items():
        if layer != "all":
            a, b = (np.ravel((u[layer][1] @ u[layer][0]).double()) for u in (one, other))
            assert row["norm"] == pytest.approx(np.linalg.norm(a), rel=1e-5)
            cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            assert row["cosine"] == pytest.approx(cosine, rel=1e-5)
    assert main(["compare", *map(str, files)]) == 0
    assert "single_transformer_blocks.0.proj_mlp" in capsys.readouterr().out


def test_what_cannot_be_converted_is_refused(train_lora: TrainLora, tmp_path: Path) -> None:
    run = train_lora("train.steps=1", "lora.targets=all")
    with pytest.raises(ConfigError, match="outside the blocks"):
        convert(trained_file(run), tmp_path / "x", to="kohya")
