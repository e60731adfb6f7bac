"""Features that a DINOv2 encodes into a latent store."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import Dinov2Model

from configs.errors import DataError
from configs.load import load
from tests.real_runs import DIGITS
from tests.train.data.test_latents import image_of
from tests.train.latent_stores import encode_alone, encoding, latents
from tests.train.tiny_vae import save_dino
from train.data.catalog import check_features, open_source
from train.data.latents.features import FeatureEncoder
from train.data.latents.store import read_index


def test_a_store_has_the_patch_tokens_of_transformers_also_of_mirrored_images(
    stored: Path, tmp_path: Path
) -> None:
    save_dino(tmp_path / "dino")
    keys = {"images": str(stored / "images"), "vae": str(stored / "vae"), "feature_grid": 2}
    encode_alone(encoding(tmp_path, features=str(tmp_path / "dino"), **keys))
    source = open_source(latents(tmp_path / "store"))
    dino = Dinov2Model.from_pretrained(tmp_path / "dino").eval()
    image, _ = image_of(stored, 7)
    mean, std = (
        torch.tensor(x).view(3, 1, 1) for x in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    )
    for flip in (False, True):
        pixels = (((image.flip(-1) if flip else image) + 1) / 2 - mean) / std
        with torch.no_grad():
            resized = F.interpolate(pixels, (28, 28), mode="bicubic")
            expected = dino(resized).last_hidden_state[0, 1:]
        found = source.features(7, flip=flip)
        assert found.shape == (4, 8)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    # The latents are those of a store without features.
    assert np.array_equal(source[7][0], open_source(latents(stored / "store"))[7][0])
    # Training needs as many as the model has patches, 16 of them.
    keys = ["data.source=latents", f"data.path={tmp_path / 'store'}", "train.global_batch=8"]
    config = load(DIGITS, [*keys, "repa.weight=0.5", "repa.block=1", "repa.features=8"])
    with pytest.raises(DataError, match=r"needs 16 features .* it has \(4, 8\)"):
        check_features(source, config)
    facts = read_index(tmp_path / "store").features
    assert facts.shape == (4, 8)


def test_a_folder_without_an_encoder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no DINOv2 of transformers"):
        FeatureEncoder(tmp_path, grid=2, device=torch.device("cpu"))
