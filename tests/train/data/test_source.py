"""Every data set that a config can name is read, and a broken one is refused before training."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from configs.errors import ConfigError, DataError
from configs.schema.data import Data
from train.data import digits as digits_command
from train.data.catalog import open_source
from train.data.folder import centre_crop
from train.data.source import from_pixels, held_out_split, training_split

PIXELS = np.random.default_rng(0).integers(0, 256, size=(5, 4, 3, 32, 32), dtype=np.uint8)
LABELS = np.arange(20).reshape(5, 4) % 10


def cifar(path: Path) -> Data:
    return Data(source="cifar10", path=str(path), size=32, channels=3)


def write_binary(folder: Path) -> None:
    for number in range(5):
        rows = [
            bytes([label]) + image.tobytes()
            for label, image in zip(LABELS[number], PIXELS[number], strict=True)
        ]
        (folder / f"data_batch_{number + 1}.bin").write_bytes(b"".join(rows))


def write_images(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, image in zip(names, PIXELS.reshape(-1, 3, 32, 32), strict=False):
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / name)


def test_digits_are_1797_images_between_minus_1_and_1() -> None:
    source = open_source(Data())
    assert len(source) == 1797
    image, label = source[0]
    assert (image.shape, image.min(), image.max(), label) == ((1, 8, 8), -1, 0.875, 0)


def test_digits_are_scikit_learns_without_importing_it() -> None:
    source, package = open_source(Data()), load_digits()
    read = [source[index] for index in range(len(source))]
    np.testing.assert_array_equal([image[0] for image, _ in read], package.images / 8 - 1)
    assert [label for _, label in read] == package.target.tolist()
    code = "import sys, train.data.digits as d; d.Digits(); assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_held_out_digits_are_never_trained_on() -> None:
    data = Data(held_out=0.25)
    source = open_source(data)
    training, held_out = training_split(source, data), held_out_split(source, data)
    assert (len(training), len(held_out)) == (1348, 449)
    trained_on = {training[index][0].tobytes() for index in range(len(training))}
    assert all(held_out[index][0].tobytes() not in trained_on for index in range(len(held_out)))


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin"])
def test_cifar10_is_read_from_its_binary_batches(tmp_path: Path, inner: str) -> None:
    (tmp_path / inner).mkdir(exist_ok=True)
    write_binary(tmp_path / inner)
    source = open_source(cifar(tmp_path))
    assert len(source) == 20
    for index in (0, 7, 19):
        image, label = source[index]
        assert image.dtype == np.uint8
        np.testing.assert_array_equal(image, PIXELS.reshape(-1, 3, 32, 32)[index])
        assert label == LABELS.ravel()[index]


def test_sub_folders_are_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_images(tmp_path / "n02", ["a.JPEG", "b.png"])
    write_images(tmp_path / "n01", ["c.png"])
    data = Data(source="folder", path=str(tmp_path), size=16, channels=3, classes=2)
    source = open_source(data)
    assert [source[index][1] for index in range(3)] == [0, 1, 1]
    assert source[0][0].shape == (3, 16, 16)


def test_bytes_become_the_float32_that_numpy_computes() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    found = from_pixels(torch.from_numpy(levels)).numpy()
    assert found.dtype == np.float32
    assert np.array_equal(found, levels.astype(np.float32) / 127.5 - 1)
    latents = torch.randn(2, 4, 8, 8)
    assert from_pixels(latents) is latents


def test_digits_written_as_png_files_are_the_same_digits(tmp_path: Path) -> None:
    assert digits_command.main([str(tmp_path / "png")]) == 0
    data = Data(source="folder", path=str(tmp_path / "png"), size=8, channels=1)
    written, digits = open_source(data), open_source(Data(source="digits"))
    assert len(written) == len(digits)
    by_label = sorted(range(len(digits)), key=lambda index: digits[index][1])
    for position in (0, 900, 1796):
        (pixels, label), (expected, expected_label) = written[position], digits[by_label[position]]
        image = from_pixels(torch.from_numpy(pixels.copy()))
        assert label == expected_label
        assert np.abs(np.asarray(image) - np.asarray(expected)).max() < 1.01 / 255
    with pytest.raises(ConfigError, match="not empty"):
        digits_command.main([str(tmp_path / "png")])


@pytest.mark.parametrize("width", [36, 64, 500])
def test_an_image_is_cropped_at_its_centre(width: int) -> None:
    pixels = np.zeros((32, width, 3), dtype=np.uint8)
    pixels[:, width // 2 - 4 : width // 2 + 4] = 255
    square = np.asarray(centre_crop(Image.fromarray(pixels), 16))
    assert square.shape == (16, 16, 3)
    columns = square[:, :, 0].mean(axis=0)
    assert columns[6:9].min() > 200
    assert columns[[0, 15]].max() < 30


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: (p / "data_batch_3.bin").unlink(), "data_batch_3.bin: missing"),
        (lambda p: (p / "data_batch_2.bin").write_bytes(b"x" * 100), "not whole images"),
        (lambda p: (p / "data_batch_2.bin").write_bytes(b"\xff" * 3073), "labels beyond 0..9"),
        (lambda p: [f.unlink() for f in p.iterdir()], "unpack cifar-10-binary.tar.gz"),
    ],
)
def test_broken_cifar10_is_refused_with_the_cause(tmp_path: Path, damage, message: str) -> None:
    write_binary(tmp_path)
    damage(tmp_path)
    with pytest.raises(DataError, match=message):
        open_source(cifar(tmp_path))


def folder_data(path: Path, **keys: object) -> Data:
    return Data(source="folder", path=str(path), size=32, channels=3, **keys)


def test_a_broken_folder_is_refused_with_the_cause(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        open_source(folder_data(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="no sub-folders"):
        open_source(folder_data(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="a class without images"):
        open_source(folder_data(tmp_path))
    write_images(tmp_path / "empty", ["a.png"])
    write_images(tmp_path / "other", ["b.png"])
    with pytest.raises(DataError, match=r"has 2 classes, data\.classes says 1"):
        open_source(folder_data(tmp_path, classes=1))
    (tmp_path / "other" / "b.png").write_bytes(b"not a png")
    source = open_source(folder_data(tmp_path))
    with pytest.raises(DataError, match=r"b\.png: not a readable image"):
        source[1]


def test_images_whose_shape_differs_from_the_config_are_refused() -> None:
    data = Data(source="dummy", size=8, channels=3).model_copy(update={"source": "digits"})
    with pytest.raises(DataError, match=r"set data\.channels and data\.size"):
        open_source(data)
