"""An encoding resumes where it stopped, and images that cannot be encoded are named."""

import errno
import json
import shutil
from itertools import count
from pathlib import Path

import pytest

from configs.errors import ConfigError, DataError
from tests.train.latent_stores import (
    contents,
    encode_alone,
    encoding,
    flip_bit,
    latents,
    truncate,
)
from tests.train.tiny_vae import change_config
from train.data.catalog import open_source
from train.engine.failure import reason_of
from train.engine.stop import StopRequest


@pytest.fixture
def copy(stored: Path, tmp_path: Path) -> Path:
    """Copy `stored`, so that a test can damage it; the paths in its index are not changed."""
    shutil.copytree(stored, tmp_path / "copy")
    return tmp_path / "copy"


def shards(store: Path) -> dict[str, bytes]:
    return {name: blob for name, blob in contents(store).items() if name.startswith("shard-")}


def test_a_finished_store_is_checked_and_not_changed(copy: Path) -> None:
    before = contents(copy / "store")
    assert sorted(before)[:2] == ["encoding.json", "index.json"]
    assert len(before) == 2 + 4 * 2
    times = {file: file.stat().st_mtime_ns for file in (copy / "store").glob("shard-*")}
    outcome, reports = encode_alone(encoding(copy))
    assert outcome is StopRequest.GO_ON
    assert [each.shards for each in reports] == [4]
    assert {file: file.stat().st_mtime_ns for file in times} == times


@pytest.mark.parametrize(
    "damage",
    [
        lambda store: (store / "shard-00001.safetensors").unlink(),
        lambda store: (store / "shard-00001.json").unlink(),
        lambda store: (store / "shard-00001.json").write_text('{"name": "shard'),
        lambda store: truncate(store / "shard-00001.safetensors"),
        lambda store: flip_bit(store / "shard-00001.safetensors"),
        lambda store: (store / ".shard-00001.safetensors.7.tmp").write_bytes(b"half"),
        lambda store: (store / ".shard-00001.json.7.tmp").write_bytes(b"half"),
    ],
)
def test_a_rerun_makes_only_missing_or_damaged_shards(copy: Path, damage) -> None:
    store = copy / "store"
    before = shards(store)
    (store / "index.json").unlink()
    damage(store)
    times = {file: file.stat().st_mtime_ns for file in store.glob("shard-*.safetensors")}
    assert encode_alone(encoding(copy, micro_batch=3))[0] is StopRequest.GO_ON
    assert shards(store) == before
    assert not list(store.glob(".*"))
    for file, time in times.items():
        if "00001" not in file.name:
            assert file.stat().st_mtime_ns == time


def test_a_stop_request_is_followed_between_shards_and_a_rerun_makes_the_rest(
    stored: Path, tmp_path: Path
) -> None:
    config = encoding(stored, out=str(tmp_path / "store"))
    calls = count()

    def request() -> StopRequest:
        return StopRequest.STOP if next(calls) == 2 else StopRequest.GO_ON

    outcome, reports = encode_alone(config, request=request)
    assert (outcome, reports[-1].shards, reports[-1].images) == (StopRequest.STOP, 2, 8)
    with pytest.raises(DataError, match=r"not a finished latent store; run jobs/encode\.sbatch"):
        open_source(latents(tmp_path / "store"))
    outcome, reports = encode_alone(config)
    assert (outcome, reports[0].shards, reports[-1].shards) == (StopRequest.GO_ON, 2, 4)
    assert shards(tmp_path / "store") == shards(stored / "store")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda folder: {"size": 8}, "size"),
        (lambda folder: {"flip": False}, "flip"),
        (lambda folder: {"dtype": "float32"}, "dtype"),
        (lambda folder: {"precision": "bf16"}, "precision"),
        (lambda folder: {"shard_examples": 5}, "shard_examples"),
        (lambda folder: change_config(folder / "vae", scaling_factor=2.0) or {}, "vae"),
        (
            lambda folder: (folder / "images/class-0/000.png").unlink() or {},
            "images, listing",
        ),
        (
            lambda folder: (
                (folder / "images/class-0/000.png").rename(folder / "images/class-1/009.png") and {}
            ),
            "listing",
        ),
    ],
)
def test_a_store_never_mixes_two_encodings(copy: Path, change, named: str) -> None:
    before = contents(copy / "store")
    keys = change(copy)
    with pytest.raises(ConfigError, match=rf"holds another encoding: {named} differ"):
        encode_alone(encoding(copy, **keys))
    assert contents(copy / "store") == before


def test_a_folder_that_holds_something_else_is_left_alone(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="not empty, and no store"):
        encode_alone(encoding(stored, out=str(tmp_path)))
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_image_is_named(copy: Path, workers: int) -> None:
    shutil.rmtree(copy / "store")
    (copy / "images/class-1/002.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"class-1/002\.png: not a readable image"):
        encode_alone(encoding(copy, workers=workers))


def test_latents_that_float16_cannot_hold_are_refused(copy: Path) -> None:
    shutil.rmtree(copy / "store")
    change_config(copy / "vae", scaling_factor=1e6)
    with pytest.raises(DataError, match=r"NaN or inf .*encode\.dtype float32"):
        encode_alone(encoding(copy))


def test_bf16_encodes_close_to_fp32(stored: Path, tmp_path: Path) -> None:
    found = []
    for precision in ("fp32", "bf16"):
        encode_alone(encoding(stored, out=str(tmp_path / precision), precision=precision))
        found.append(open_source(latents(tmp_path / precision))[5][0])
    assert 0 < abs(found[0] - found[1]).max() < 0.2


def test_a_full_disk_is_recognised(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "store").mkdir()
    settings = json.loads((stored / "store/encoding.json").read_text())
    (tmp_path / "store/encoding.json").write_text(json.dumps(settings))
    monkeypatch.setattr("configs.disk.os.fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        encode_alone(encoding(stored, out=str(tmp_path / "store")))
    assert reason_of(caught.value) == "disk"
    assert not list((tmp_path / "store").glob("shard-*"))
