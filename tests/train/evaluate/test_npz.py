"""Images in an .npz: numpy and the evaluators can read them, and both directions stream."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from configs.errors import ConfigError
from train.evaluate.npz import Pixels, open_images, write_npz

LABELS = np.arange(7, dtype=np.int64)


def images(count: int = 7, side: int = 4) -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def test_numpy_reads_a_file_written_in_parts(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    write_npz(file, iter([images()[:3], images()[3:]]), shape=(7, 4, 4, 3), labels=LABELS)
    with np.load(file, allow_pickle=False) as content:
        assert content.files == ["arr_0", "arr_1"]
        assert content["arr_0"].dtype == np.uint8
        assert (content["arr_0"] == images()).all()
        assert content["arr_1"].dtype == np.int64
        assert (content["arr_1"] == LABELS).all()
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_batches_of_a_file_written_by_numpy_are_its_images(
    tmp_path: Path, save: object
) -> None:
    assert callable(save)
    save(tmp_path / "a.npz", images())
    stored = open_images(tmp_path / "a.npz")
    assert stored.shape == (7, 4, 4, 3)
    batches = list(stored.batches(3))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    assert (np.concatenate(batches) == images()).all()


def test_neither_writing_nor_reading_holds_all_images(tmp_path: Path) -> None:
    one = images(16, 128)

    def parts() -> Iterator[Pixels]:
        for _ in range(64):
            yield one.copy()

    tracemalloc.start()
    try:
        shape = (64 * 16, 128, 128, 3)
        write_npz(tmp_path / "a.npz", parts(), shape=shape, labels=np.zeros(64 * 16, np.int64))
        read = sum(len(batch) for batch in open_images(tmp_path / "a.npz").batches(16))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == 64 * 16
    assert (tmp_path / "a.npz").stat().st_size > 64 * one.nbytes
    assert peak < 8 * one.nbytes


def test_a_file_without_images_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    with pytest.raises(ConfigError, match="no such file"):
        open_images(file)
    file.write_bytes(b"no zip")
    with pytest.raises(ConfigError, match=r"expected an \.npz with arr_0"):
        open_images(file)
    for wrong in (images().astype(np.float32), images()[0], images().transpose(0, 3, 1, 2)):
        np.savez(file, wrong)
        with pytest.raises(ConfigError, match=r"with arr_0, uint8 \[N, H, W, 3\]"):
            open_images(file)
    np.savez(file, images=images())
    with pytest.raises(ConfigError, match="arr_0"):
        open_images(file)
