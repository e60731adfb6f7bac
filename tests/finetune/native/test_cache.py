"""The cache keeps an image with its own caption, and encodes it again if either changes."""

import shutil
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from finetune.native.cache import Cache, CaptionedImage, PromptText
from runs.folder import RunFolder
from tests.finetune.conftest import TrainLora
from tests.real_runs import losses

pytestmark = pytest.mark.xdist_group("flux")


def example(folder: Path, name: str, caption: str) -> CaptionedImage:
    file = folder / name
    if not file.exists():
        file.write_bytes(name.encode())
    return CaptionedImage(caption, file)


def test_an_edited_caption_image_or_setting_gets_another_file(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", settings={"model": "a"})
    one = example(tmp_path, "a.png", "a dog")
    names = {cache.file(one), cache.file(example(tmp_path, "a.png", "a cat"))}
    names |= {
        cache.file(PromptText("a dog")),
        Cache(tmp_path / "cache", settings={"model": "b"}).file(one),
    }
    one.image.write_bytes(b"edited")
    names.add(Cache(tmp_path / "cache", settings={"model": "a"}).file(one))
    assert len(names) == 5


def test_existing_files_are_not_made_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", settings={})
    one, two = example(tmp_path, "a.png", "a dog"), example(tmp_path, "b.png", "a cat")
    assert cache.missing([one, two, one]) == [one, two]
    cache.save(one, {"prompt": torch.ones(2, 3)})
    assert cache.missing([one, two]) == [two]
    assert torch.equal(cache.load_some(one, "prompt")[0], torch.ones(2, 3))
    assert not list((tmp_path / "cache").glob(".*"))


def test_a_file_that_another_node_made_is_waited_for(tmp_path: Path) -> None:
    cache, other = (Cache(tmp_path / "cache", settings={}) for _ in range(2))
    cache.save(PromptText("here"), {"prompt": torch.ones(1)})
    late = threading.Timer(0.3, lambda: other.save(PromptText("late"), {"prompt": torch.ones(1)}))
    late.start()
    cache.wait_for([PromptText("here"), PromptText("late")])
    assert not cache.missing([PromptText("late")])
    late.join()
    with pytest.raises(FileNotFoundError, match="not visible here"):
        cache.wait_for([PromptText("never")], timeout_s=0)


def test_every_latent_is_stored_with_the_embedding_of_its_own_caption(
    trained: RunFolder, flux: Path
) -> None:
    cached = {}
    for file in (trained.path / "cache").glob("*.safetensors"):
        with safe_open(str(file), framework="pt") as content:
            metadata, names = content.metadata(), set(content.keys())
        if "image" in metadata:
            cached[metadata["image"]] = metadata["text"]
            assert names == {"latent.32", "prompt", "pooled"}
    captions = {
        file.with_suffix(".png").name: file.read_text().strip()
        for file in (flux / "images").glob("*.txt")
    }
    expected = {name: text.replace("[trigger]", "tiny subject") for name, text in captions.items()}
    assert cached == expected


def test_a_resumed_run_encodes_only_what_was_edited(flux: Path, train_lora: TrainLora) -> None:
    # After a checkpoint, edited data would be refused.
    run = train_lora(stop_request="PAUSE")
    before = {file.name for file in (run.path / "cache").iterdir()}
    caption = flux / "images" / "00.txt"
    text = caption.read_text()
    try:
        caption.write_text("another word for [trigger]\n")
        train_lora("train.steps=2", resumes=run)
    finally:
        caption.write_text(text)
    after = {file.name for file in (run.path / "cache").iterdir()}
    assert before < after
    assert len(after - before) == 1


def test_the_runs_of_a_study_encode_each_image_once(
    flux: Path, train_lora: TrainLora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = tmp_path / "study" / "cells"
    cells.mkdir(parents=True)
    (tmp_path / "study" / "cells.tsv").touch()
    monkeypatch.setenv("LOGS", str(cells))
    edited = shutil.copytree(flux / "images", tmp_path / "images")
    (edited / "00.txt").write_text("another word for [trigger]\n")
    shared, counts = tmp_path / "study" / "cache", []
    for folder in (flux / "images", flux / "images", edited):
        run = train_lora("train.steps=1", f"data.folder={folder}")
        assert not (run.path / "cache").exists()
        counts.append(len(list(shared.iterdir())))
    assert counts == [8, 8, 9]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_captions_are_dropped_as_often_as_asked(
    share: float, train_lora: TrainLora, trained: RunFolder
) -> None:
    run = train_lora(f"data.caption_dropout={share}", "train.steps=1")
    same = losses(run)[1] == losses(trained)[1]
    assert same == (share == 0)
