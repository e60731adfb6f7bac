"""The base model takes the shortest way to its device."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import FluxTransformer2DModel

from finetune.native.base_model import load_transformer


@pytest.mark.parametrize(("quantise", "place"), [("none", "cuda:1"), ("int8", "cpu")])
def test_only_a_model_to_be_quantised_is_loaded_into_host_memory(
    monkeypatch: pytest.MonkeyPatch, quantise: str, place: str
) -> None:
    asked: dict[str, Any] = {}

    def load(folder: Path, **options: Any) -> torch.nn.Module:
        asked.update(options)
        return torch.nn.Linear(1, 1)

    monkeypatch.setattr(FluxTransformer2DModel, "from_pretrained", load)
    load_transformer(Path("flux"), torch.bfloat16, device=torch.device("cuda:1"), quantise=quantise)
    assert asked["device_map"] == {"": torch.device(place)}
