"""Latents are the VAE's encodings, sampled anew every epoch, and decoded by the same VAE."""

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL

from configs.errors import DataError
from configs.load import resolve
from configs.schema import Pretrain
from configs.schema.data import Data
from tests.train.data.test_loader import global_batches, same
from tests.train.latent_stores import encode_alone, encoding, latents, write_store
from tests.train.tiny_vae import change_config, random_images, save_kl
from train.data.catalog import open_source
from train.data.folder import ImageFolder, list_images
from train.data.latents.dataset import Latents
from train.data.latents.vae import Vae, check_vae, decode_samples, vae_facts
from train.data.loader import Microbatch
from train.data.source import from_pixels
from train.diffusion.rng import Augmentation


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with images, a VAE, and their store."""
    return write_store(tmp_path_factory.mktemp("kl"))


def image_of(folder: Path, number: int) -> tuple[torch.Tensor, int]:
    listing = list_images(folder / "images")
    image, label = ImageFolder(listing, size=16, channels=3, classes=3)[number]
    return from_pixels(torch.from_numpy(image.copy())[None]), label


def store(folder: Path) -> Latents:
    return open_source(latents(folder / "store"))


def augmentation(**keys: int) -> Augmentation:
    return Augmentation(**({"flip": False, "seed": 1, "epoch": 0, "index": 3} | keys))


def test_a_latent_is_the_encoding_of_diffusers_scaled_and_shifted(made: Path) -> None:
    vae = AutoencoderKL.from_pretrained(made / "vae", low_cpu_mem_usage=False)
    source = store(made)
    assert len(source) == 15
    for number in (0, 4, 14):
        image, label = image_of(made, number)
        for flip in (False, True):
            with torch.no_grad():
                posterior = vae.encode(image.flip(-1) if flip else image).latent_dist
            (mean, std), found = source.moments(number, flip=flip)
            expected = (posterior.mean - vae.config.shift_factor) * vae.config.scaling_factor
            np.testing.assert_allclose(mean, expected[0], atol=2e-3)
            np.testing.assert_allclose(std, posterior.std[0] * vae.config.scaling_factor, atol=2e-3)
            assert found == label


def test_a_va_vae_of_32_channels_is_normalised_by_its_statistics_per_channel(
    tmp_path: Path,
) -> None:
    blocks = {"down_block_types": ("DownEncoderBlock2D",), "up_block_types": ("UpDecoderBlock2D",)}
    torch.manual_seed(0)
    published = AutoencoderKL(
        latent_channels=32, block_out_channels=(8,), norm_num_groups=4, scaling_factor=1.0, **blocks
    )
    mean, std = torch.linspace(-1, 1, 32), torch.linspace(0.5, 4, 32)
    published.register_to_config(latents_mean=mean.tolist(), latents_std=std.tolist())
    published.save_pretrained(tmp_path)
    images = random_images(2)
    with torch.no_grad():
        z = published.encode(images).latent_dist.mode()
    latent, _ = Vae(tmp_path, device=torch.device("cpu")).encode(images)
    expected = (z - mean.view(32, 1, 1)) / std.view(32, 1, 1)
    torch.testing.assert_close(latent, expected, rtol=1e-5, atol=1e-5)


def test_a_sample_is_mean_plus_std_times_its_own_noise(made: Path) -> None:
    source = store(made)
    (mean, std), label = source.moments(3)
    first, found = source.augmented(3, augmentation())
    noise = (first - mean) / std
    assert found == label
    assert std.min() > 0.1
    np.testing.assert_allclose(noise, augmentation().noise(mean.shape), rtol=1e-3, atol=1e-4)
    assert np.array_equal(first, source.augmented(3, augmentation())[0])
    for other in (augmentation(epoch=1), augmentation(seed=2), augmentation(index=4)):
        assert abs(np.corrcoef(noise.ravel(), other.noise(mean.shape).ravel())[0, 1]) < 0.3


def test_a_flip_uses_the_encoding_of_the_mirrored_image_not_a_mirrored_latent(made: Path) -> None:
    source = store(made)
    plain, flipped = source.moments(3)[0], source.moments(3, flip=True)[0]
    assert not np.allclose(flipped, plain[..., ::-1], atol=0.05)
    sample = source.augmented(3, augmentation(flip=True))[0]
    np.testing.assert_allclose(
        sample, flipped[0] + flipped[1] * augmentation().noise(plain[0].shape)
    )


def batches(data: Data, *, world: int) -> list[Microbatch]:
    """Return the batches of three steps, joined over ranks."""
    tree = {"data": data.model_dump(), "train": {"global_batch": 8}}
    return global_batches(resolve(tree, source="test"), world=world, steps=3)


def test_ranks_and_loader_workers_sample_what_one_rank_samples(made: Path) -> None:
    data = latents(made / "store", flip=True, held_out=0.2)
    alone = batches(data, world=1)
    assert alone[0].image.dtype == torch.float32
    assert same(alone, batches(data, world=2))
    assert same(alone, batches(data.model_copy(update={"workers": 2}), world=2))


def test_a_pickled_store_has_no_open_files(made: Path) -> None:
    source = store(made)
    source[0]
    copy = pickle.loads(pickle.dumps(source))
    assert not copy._open
    assert np.array_equal(copy[14][0], source[14][0])
    with pytest.raises(IndexError):
        source[15]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"size": 4}, r"latents are 4 x 8 x 8, the config asks for 4 x 4 x 4: set data\.channels"),
        ({"channels": 16}, r"the config asks for 16 x 8 x 8"),
        ({"classes": 2}, r"3 classes, data\.classes says 2"),
    ],
)
def test_a_config_that_does_not_fit_the_store_is_refused(
    made: Path, keys: dict[str, int], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        open_source(latents(made / "store", **keys))


def test_a_store_without_mirrored_images_cannot_be_flipped(made: Path, tmp_path: Path) -> None:
    encode_alone(encoding(made, out=str(tmp_path / "store"), flip=False))
    assert len(open_source(latents(tmp_path / "store"))) == 15
    with pytest.raises(DataError, match=r"set data\.flip false, or encode with encode\.flip true"):
        open_source(latents(tmp_path / "store", flip=True))


def run_config(folder: Path, **keys: object) -> Pretrain:
    data = latents(folder / "store", **keys).model_dump()
    return resolve({"data": data}, source="test")


def test_samples_are_decoded_as_diffusers_decodes_them(made: Path) -> None:
    source, device = store(made), torch.device("cpu")
    latent = torch.stack([torch.from_numpy(source[n][0]) for n in range(6)])
    vae = AutoencoderKL.from_pretrained(made / "vae", low_cpu_mem_usage=False)
    with torch.no_grad():
        z = latent / vae.config.scaling_factor + vae.config.shift_factor
        expected = vae.decode(z).sample.clamp(-1, 1)
    decoded = decode_samples(latent, run_config(made), device=device)
    assert decoded.shape == (6, 3, 16, 16)
    torch.testing.assert_close(decoded, expected, rtol=0, atol=1e-5)
    assert decode_samples(latent, Pretrain(), device=device) is latent


def test_a_missing_or_different_vae_leaves_latents_and_warns(
    made: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("train"), "propagate", True)
    save_kl(tmp_path / "other", seed=1)
    latent = torch.randn(2, 4, 8, 8)
    for name, message in (("other", "another VAE"), ("nowhere", "no config of a VAE")):
        config = run_config(made, vae=str(tmp_path / name))
        caplog.clear()
        assert decode_samples(latent, config, device=torch.device("cpu")) is latent
        assert message in caplog.text


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda vae: (vae / "config.json").unlink(), "no config of a VAE there"),
        (lambda vae: change_config(vae, _class_name="VQModel"), "_class_name is VQModel"),
        (
            lambda vae: change_config(vae, latents_mean=[0.0], latents_std=[1.0]),
            "latent_channels is 4",
        ),
        (lambda vae: change_config(vae, latent_channels=8), "cannot be loaded"),
        (
            lambda vae: next(vae.glob("*.safetensors")).rename(vae / "weights.bin"),
            "pickled weights are not read",
        ),
        (
            lambda vae: next(vae.glob("*.safetensors")).write_bytes(b"x" * 99),
            "cannot be loaded",
        ),
    ],
)
def test_a_folder_without_a_usable_vae_is_refused(tmp_path: Path, damage, message: str) -> None:
    save_kl(tmp_path)
    damage(tmp_path)
    with pytest.raises(DataError, match=message):
        Vae(tmp_path, device=torch.device("cpu"))


def test_a_vae_is_identified_by_its_weights(tmp_path: Path) -> None:
    save_kl(tmp_path / "one")
    save_kl(tmp_path / "same")
    save_kl(tmp_path / "other", seed=1)
    check_vae(tmp_path / "same", vae_facts(tmp_path / "one"))
    with pytest.raises(DataError, match=r"another VAE .*set data\.vae to a copy of"):
        check_vae(tmp_path / "other", vae_facts(tmp_path / "one"))
    # Another copy of the weights in half precision is not loaded and changes nothing.
    (tmp_path / "same/diffusion_pytorch_model.fp16.safetensors").write_bytes(b"x")
    check_vae(tmp_path / "same", vae_facts(tmp_path / "one"))
