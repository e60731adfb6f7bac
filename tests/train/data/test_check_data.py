"""`train check-data` finds data that cannot be trained on, and names the fix."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from configs.errors import DataError
from tests.train.latent_stores import (
    encode_alone,
    encoding,
    flip_bit,
    latents,
    truncate,
)
from tests.train.tiny_vae import save_images, save_kl
from train.__main__ import main
from train.data.catalog import open_source
from train.data.latents.store import checksum


@pytest.fixture
def store(stored: Path, tmp_path: Path) -> Path:
    """Copy the store, so that a test can damage it; its VAE is the original."""
    shutil.copytree(stored / "store", tmp_path / "store")
    return tmp_path / "store"


def update_checksums(store: Path) -> None:
    """Make the sizes and checksums of the index those of the present shards."""
    index = json.loads((store / "index.json").read_text())
    for entry in index["shards"]:
        file = store / entry["name"]
        entry |= {"bytes": file.stat().st_size, "sha256": checksum(file)}
    (store / "index.json").write_text(json.dumps(index))


def change(store: Path, modify) -> None:
    """Modify the tensors of every shard, and keep the checksums right."""
    for file in store.glob("*.safetensors"):
        tensors = load_file(file)
        modify(tensors)
        save_file(tensors, file)
    update_checksums(store)


def change_index(store: Path, **keys: object) -> None:
    index = json.loads((store / "index.json").read_text()) | keys
    (store / "index.json").write_text(json.dumps(index))


def unnormalise(tensors: dict[str, np.ndarray]) -> None:
    tensors["moments"] = (tensors["moments"] / np.float16(0.18)).astype(np.float16)


def shift(tensors: dict[str, np.ndarray]) -> None:
    tensors["moments"][:, :, 0, 2] += 6


def add_nan(tensors: dict[str, np.ndarray]) -> None:
    tensors["moments"][0, 0, 0, 0, 0, 0] = np.nan


def add_wrong_label(tensors: dict[str, np.ndarray]) -> None:
    tensors["label"][-1] = 7


SHARD = "shard-00002.safetensors"
# The damage, the doctor's message, and what else finds it: `fast`, `training`.
DAMAGES = [
    (lambda s: (s / SHARD).unlink(), f"{SHARD}: missing; run jobs/encode", "fast training"),
    (lambda s: truncate(s / SHARD), f"{SHARD}: .* bytes instead of", "fast training"),
    (lambda s: flip_bit(s / SHARD), f"{SHARD}: its bytes have changed", ""),
    (lambda s: change(s, unnormalise), "not normalised: channel 0 .*scaling", "fast training"),
    (lambda s: change(s, shift), "not normalised: channel 2 has mean", "fast training"),
    (lambda s: change(s, add_nan), "hold NaN or inf; encode with", "fast training"),
    (lambda s: change(s, add_wrong_label), r"labels 0\.\.7, beyond the 3 classes", "fast"),
    (lambda s: change_index(s, examples=50_000), "claims 50000 examples, its", "fast training"),
    (lambda s: change_index(s, shards=[], examples=0), "holds no examples", "fast training"),
    (lambda s: change_index(s, format=9), r"index\.json: format: .* should be 1", "fast training"),
    (lambda s: change_index(s, dtype="float32"), "its moments are .*F16", "fast training"),
    (lambda s: (s / "index.json").write_text("{"), r"index\.json: .*Invalid JSON", "fast training"),
    (lambda s: (s / "index.json").unlink(), "not a finished latent store", "fast training"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "message", "found_by"), DAMAGES)
def test_a_damaged_store_is_refused_with_the_fix(
    store: Path, damage, message: str, found_by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(store)
    pattern = f"(?s){message}"
    assert main(["check-data", str(store)]) == 1
    output = capsys.readouterr().out
    assert re.search(pattern, output), output
    assert main(["check-data", str(store), "--fast"]) == int("fast" in found_by)
    if "training" in found_by:
        with pytest.raises(DataError, match=pattern):
            open_source(latents(store))
    else:
        open_source(latents(store))


def test_an_intact_store_has_no_problems(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-data", str(store)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{store}: no problems found\n"
    assert "15 latents of 4 x 8 x 8 float16, mirrored too, 3 classes, 4 shards" in printed.err
    assert main(["check-data", str(store), "--fast"]) == 0
    assert "not every byte was read" in capsys.readouterr().out


def test_latents_of_a_vae_with_a_wrong_factor_are_refused(tmp_path: Path) -> None:
    save_images(tmp_path / "images")
    save_kl(tmp_path / "vae", scale=0.1)
    encode_alone(encoding(tmp_path))
    with pytest.raises(DataError, match=r"not normalised: channel 0 .*channel 3 "):
        open_source(latents(tmp_path / "store"))


def test_a_missing_or_different_vae_is_named(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_kl(tmp_path / "same")
    assert main(["check-data", str(store), "--vae", str(tmp_path / "same")]) == 0
    save_kl(tmp_path / "other", seed=1)
    for name, message in (("other", "another VAE"), ("nowhere", "samples cannot be decoded")):
        capsys.readouterr()
        assert main(["check-data", str(store), "--vae", str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().out


def test_every_image_of_a_folder_is_checked_unless_fast(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(stored / "images", tmp_path / "images")
    assert main(["check-data", str(tmp_path / "images")]) == 0
    (tmp_path / "images/class-2/001.png").write_bytes(b"")
    for options in ([], ["--fast"]):
        capsys.readouterr()
        assert main(["check-data", str(tmp_path / "images"), *options]) == 1
        output = capsys.readouterr().out
        assert "class-2/001.png: not a readable image" in output
    assert main(["check-data", str(tmp_path / "nowhere")]) == 1
    assert "no such folder" in capsys.readouterr().out
