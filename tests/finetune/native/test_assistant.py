"""The assistant is in the weights of the base model, and leaves no trace in them."""

from pathlib import Path

import pytest
import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor

from configs.load import resolve
from configs.schema import Finetune
from configs.schema.finetune import Lora
from finetune.native.assistant import prepare_adapters, without_assistant
from finetune.native.lora import ASSISTANT, LEARNED, activate, add_assistant, add_learned
from tests.finetune.native.test_lora import output

pytestmark = pytest.mark.xdist_group("flux")


def config(flux: Path) -> Finetune:
    model = {
        "folder": str(flux / "model"),
        "assistant_lora": str(flux / "assistant.safetensors"),
    }
    prompts = {"prompts": ["a"]}
    tree = {"kind": "finetune", "flux": model, "data": {"folder": "x"}, "sample": prompts}
    found = resolve(tree, source="test")
    assert isinstance(found, Finetune)
    return found


def load(flux: Path, dtype: torch.dtype) -> FluxTransformer2DModel:
    folder = flux / "model" / "transformer"
    transformer = FluxTransformer2DModel.from_pretrained(folder, dtype=dtype).eval()
    weights = add_learned(transformer, Lora(rank=2, targets="attention"), seed=0)
    for parameter in weights.parameters():
        parameter.data += 0.1
    return transformer


def base(transformer: FluxTransformer2DModel) -> dict[str, Tensor]:
    """Return copies of the weights of the base model, by their names without adapters."""
    return {
        name.replace(".base_layer", ""): parameter.clone()
        for name, parameter in transformer.named_parameters()
        if ".lora_" not in name
    }


def test_a_merged_assistant_does_what_one_beside_does(flux: Path) -> None:
    beside, merged = load(flux, torch.float32), load(flux, torch.float32)
    add_assistant(beside, flux / "assistant.safetensors")
    activate(beside, LEARNED)
    without = output(beside)
    activate(beside, LEARNED, ASSISTANT)
    prepare_adapters(merged, config(flux))
    assert torch.allclose(output(merged), output(beside), atol=1e-5)
    assert not torch.allclose(output(merged), without, atol=1e-3)
    trained = {name for name, p in merged.named_parameters() if p.requires_grad}
    assert trained
    assert all(f".{LEARNED}." in name for name in trained)


def test_samples_have_the_weights_of_the_file_to_the_bit_and_training_its_own(flux: Path) -> None:
    transformer = load(flux, torch.bfloat16)
    original = base(transformer)
    prepare_adapters(transformer, config(flux))
    merged = base(transformer)
    changed = {name for name in original if not torch.equal(merged[name], original[name])}
    assert len(changed) == 6, "q, k and v of both blocks"
    for _ in range(2):
        with without_assistant(transformer, config(flux)):
            found = base(transformer)
            assert all(torch.equal(found[name], weight) for name, weight in original.items())
        found = base(transformer)
        assert all(torch.equal(found[name], weight) for name, weight in merged.items())
