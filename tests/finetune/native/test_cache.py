"""What is made of an image is kept with its own caption, and made anew where either changes."""

import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from configs.run.folder import RunFolder
from finetune.native.cache import Cache, CaptionedImage, PromptText
from tests.finetune.conftest import Tune
from tests.real_runs import losses

pytestmark = pytest.mark.xdist_group("flux")


def example(folder: Path, name: str, caption: str) -> CaptionedImage:
    file = folder / name
    if not file.exists():
        file.write_bytes(name.encode())
    return CaptionedImage(caption, file)


def test_an_edited_caption_image_or_setting_is_another_file(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", {"model": "a"})
    one = example(tmp_path, "a.png", "a dog")
    names = {cache.file(one), cache.file(example(tmp_path, "a.png", "a cat"))}
    names |= {cache.file(PromptText("a dog")), Cache(tmp_path / "cache", {"model": "b"}).file(one)}
    one.image.write_bytes(b"edited")
    names.add(Cache(tmp_path / "cache", {"model": "a"}).file(one))
    assert len(names) == 5


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", {})
    one, two = example(tmp_path, "a.png", "a dog"), example(tmp_path, "b.png", "a cat")
    assert cache.missing([one, two, one]) == [one, two]
    cache.save(one, {"prompt": torch.ones(2, 3)})
    assert cache.missing([one, two]) == [two]
    assert torch.equal(cache.load_some(one, "prompt")[0], torch.ones(2, 3))
    assert not list((tmp_path / "cache").glob("*.partial"))


def test_a_file_that_another_node_made_is_waited_for(tmp_path: Path) -> None:
    cache, other = (Cache(tmp_path / "cache", {}) for _ in range(2))
    cache.save(PromptText("here"), {"prompt": torch.ones(1)})
    late = threading.Timer(0.3, lambda: other.save(PromptText("late"), {"prompt": torch.ones(1)}))
    late.start()
    cache.wait_for([PromptText("here"), PromptText("late")])
    assert not cache.missing([PromptText("late")])
    late.join()
    with pytest.raises(FileNotFoundError, match="not visible here"):
        cache.wait_for([PromptText("never")], timeout_s=0)


def test_every_latent_stands_in_a_file_with_the_embedding_of_its_own_caption(
    tuned: RunFolder, flux: Path
) -> None:
    said = {}
    for file in (tuned.path / "cache").glob("*.safetensors"):
        with safe_open(str(file), framework="pt") as content:
            note, names = content.metadata(), set(content.keys())
        if "image" in note:
            said[note["image"]] = note["text"]
            assert names == {"latent.32", "prompt", "pooled"}
    captions = {
        file.with_suffix(".png").name: file.read_text().strip()
        for file in (flux / "images").glob("*.txt")
    }
    expected = {name: text.replace("[trigger]", "tiny subject") for name, text in captions.items()}
    assert said == expected


def test_a_resumed_run_encodes_only_what_was_edited(flux: Path, tune: Tune) -> None:
    run = tune("train.steps=2")
    before = {file.name for file in (run.path / "cache").iterdir()}
    caption = flux / "images" / "00.txt"
    text = caption.read_text()
    try:
        caption.write_text("another word for [trigger]\n")
        tune("train.steps=4", resumes=run)
    finally:
        caption.write_text(text)
    after = {file.name for file in (run.path / "cache").iterdir()}
    assert before < after
    assert len(after - before) == 1


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_captions_are_dropped_as_often_as_asked(share: float, tune: Tune, tuned: RunFolder) -> None:
    run = tune(f"data.caption_dropout={share}", "train.steps=1")
    same = losses(run)[1] == losses(tuned)[1]
    assert same == (share == 0)
