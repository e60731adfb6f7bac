"""Sample sets are the same on any number of ranks, can be resumed, and describe their images."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import train.evaluate.npz
from configs.checks.batch import divide
from configs.errors import ConfigError, DataError
from configs.load import resolve
from configs.schema import Sampling
from runs.folder import RunFolder
from tests.real_runs import TINY, opened, torchrun, trained
from tests.train.latent_stores import write_store
from train.data.latents.vae import open_decoder, vae_facts
from train.diffusion.objective import DiffusionObjective
from train.engine.checkpoint import load_weights
from train.engine.distributed import process_group, read_ranks
from train.engine.stop import StopRequest
from train.evaluate.npz import NpzShards
from train.evaluate.sample_set import draw_set
from train.evaluate.sampler import sample
from train.model.build import build_network

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def run() -> RunFolder:
    """A run on digits with checkpoints at steps 2 and 4, whose weights differ clearly."""
    keys = ["train.steps=4", "checkpoint.every=2", "optimizer.lr=0.01"]
    return trained([*TINY, *keys])


def sampling(run: RunFolder, **keys: Any) -> Sampling:
    tree = {"kind": "sample", "run": str(run.path), "num": 20, "batch": 6}
    return resolve(tree | keys, source="test")


def draw(
    run: RunFolder,
    out: Path,
    *,
    request: Callable[[], StopRequest] = lambda: StopRequest.GO_ON,
    **keys: Any,
) -> list[int]:
    """Draw with this process as the only rank; return the reported numbers of shards."""
    config = sampling(run, **keys)
    shards = NpzShards(out=out, num=config.num, size=config.batch)
    ranks, reports = read_ranks(), list[int]()
    with process_group(ranks):
        draw_set(config, shards, ranks, request=request, report=reports.append)
    return reports


def arrays(file: Path) -> Arrays:
    with np.load(file, allow_pickle=False) as content:
        return dict(content)


def drawn(run: RunFolder, folder: Path, **keys: Any) -> Arrays:
    """Draw a set into a new file of a folder and return its arrays."""
    out = folder / f"{len(list(folder.iterdir()))}.npz"
    draw(run, out, **keys)
    return arrays(out)


# 20 images in batches of 3 are 7 shards.
@pytest.mark.parametrize("several", [2, pytest.param(3, marks=pytest.mark.long)])
def test_any_number_of_ranks_writes_the_same_bytes(run: RunFolder, several: int) -> None:
    files = {}
    for ranks in (1, several):
        set_of_ranks = opened(run.path, ["num=20", "batch=3"], kind="sample")
        torchrun(set_of_ranks, ranks=ranks)
        assert list(set_of_ranks.records())[-1]["event"] == "done"
        files[ranks] = {file.name: file.read_bytes() for file in set_of_ranks.samples.iterdir()}
    assert files[1].keys() == {"images.npz", "images.json"}
    assert files[1] == files[several]


def test_the_images_are_those_of_the_sampler_of_grids(run: RunFolder, tmp_path: Path) -> None:
    found = drawn(run, tmp_path, seed=5)
    config = run.config()
    network = build_network(config).eval()
    ranks = read_ranks()
    with process_group(ranks):
        load_weights(run.checkpoints, network)
        expected = sample(
            network,
            DiffusionObjective(config, ranks.device),
            torch.from_numpy(found["arr_1"]),
            config.model_copy(update={"seed": 5}),
            layout=divide(config, world=1),
            ranks=ranks,
            then=torch.Tensor.cpu,
        )
    levels = (expected.clamp(-1, 1) + 1) * 127.5
    assert found["arr_0"].shape == (20, 8, 8, 3)
    assert (found["arr_0"] == found["arr_0"][..., :1]).all()
    off = np.abs(found["arr_0"][..., 0] - levels[:, 0].numpy())
    assert off.max() <= 0.5 + 1e-3
    assert levels.std() > 10


def test_an_image_does_not_depend_on_how_many_are_drawn(run: RunFolder, tmp_path: Path) -> None:
    few, many = drawn(run, tmp_path, num=12), drawn(run, tmp_path, num=20)
    assert (few["arr_0"] == many["arr_0"][:12]).all()
    assert (few["arr_1"] == many["arr_1"][:12]).all()
    assert len(np.unique(many["arr_0"], axis=0)) == 20


def test_labels_are_random_or_take_turns(run: RunFolder, tmp_path: Path) -> None:
    turn = drawn(run, tmp_path, labels="turn", num=25)["arr_1"]
    assert turn.dtype == np.int64
    assert turn.tolist() == [number % 10 for number in range(25)]
    random = drawn(run, tmp_path, num=600, batch=200)["arr_1"]
    counts = np.bincount(random, minlength=10)
    assert counts.sum() == 600
    assert 30 < counts.min() <= counts.max() < 90
    assert (random != drawn(run, tmp_path, num=600, batch=200, seed=1)["arr_1"]).any()


def test_every_key_changes_the_images(run: RunFolder, tmp_path: Path) -> None:
    own = drawn(run, tmp_path)["arr_0"]
    others: list[dict[str, Any]] = [
        {"seed": 1}, {"weights": "model"}, {"step": 2}, {"steps": 3}, {"sampler": "heun"},
        {"guidance": 4.0},
    ]  # fmt: skip
    for keys in others:
        assert (drawn(run, tmp_path, **keys)["arr_0"] != own).any(), keys
    metadata = json.loads((tmp_path / "0.json").read_text())
    assert (metadata["run"], metadata["checkpoint"]) == (str(run.path), 4)
    assert (metadata["images"], metadata["num"]) == (64, 20)
    assert (metadata["sampler"], metadata["steps"]) == ("euler", 2)


def test_a_stopped_set_resumes_at_the_missing_shards(run: RunFolder, tmp_path: Path) -> None:
    whole, halved = tmp_path / "whole.npz", tmp_path / "halved.npz"
    assert draw(run, whole) == [0, 1, 2, 3, 4]
    requests = iter([StopRequest.GO_ON, StopRequest.GO_ON, StopRequest.STOP])
    assert draw(run, halved, request=lambda: next(requests)) == [0, 1, 2]
    assert not halved.exists()
    # Half written by a killed rank.
    (tmp_path / "halved.npz.pieces/.000003.npy.1").write_bytes(b"torn")
    assert draw(run, halved) == [2, 3, 4]
    assert halved.read_bytes() == whole.read_bytes()
    assert draw(run, halved) == [4]
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"whole.npz", "whole.json", "halved.npz", "halved.json"}


@pytest.mark.parametrize("killed_at", ["note.json", "images.json"])
def test_a_set_killed_while_it_is_joined_is_joined_again(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    class Killed(Exception):
        pass

    def kill(*arguments: object, **keys: object) -> None:
        raise Killed

    out = tmp_path / "images.npz"
    with monkeypatch.context() as patch:
        # Before the metadata is written, or between that and the removal of the shards.
        if killed_at == "images.json":
            patch.setattr(NpzShards, "remove", kill)
        else:
            patch.setattr(train.evaluate.npz, "write_npz", kill)
        with pytest.raises(Killed):
            draw(run, out)
    draw(run, out)
    whole = drawn(run, tmp_path)
    assert (arrays(out)["arr_0"] == whole["arr_0"]).all()
    assert not (tmp_path / "images.npz.pieces").exists()


def test_a_resumed_set_keeps_its_checkpoint(run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    (copy.checkpoints / "step-000000004").rename(tmp_path / "later")
    requests = iter([StopRequest.GO_ON, StopRequest.STOP])
    out = tmp_path / "images.npz"
    draw(copy, out, request=lambda: next(requests))
    (tmp_path / "later").rename(copy.checkpoints / "step-000000004")
    draw(copy, out)
    assert json.loads((tmp_path / "images.json").read_text())["checkpoint"] == 2
    (tmp_path / "sets").mkdir()
    assert (arrays(out)["arr_0"] == drawn(run, tmp_path / "sets", step=2)["arr_0"]).all()


def test_a_run_that_cannot_be_sampled_is_refused(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sample\.sampler ddim does not sample .* set euler or"):
        draw(run, tmp_path / "x.npz", sampler="ddim")
    with pytest.raises(ConfigError, match="no checkpoint step-000000003; there are step-000000002"):
        draw(run, tmp_path / "x.npz", step=3)
    copy = RunFolder(tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    (torn,) = (copy.checkpoints / "step-000000004").glob("*.distcp")
    torn.write_bytes(torn.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"step-000000004 is damaged .*delete it"):
        draw(copy, tmp_path / "x.npz")
    shutil.rmtree(copy.checkpoints)
    with pytest.raises(ConfigError, match="no checkpoint yet; train the run first"):
        draw(copy, tmp_path / "x.npz")
    assert not list(tmp_path.glob("x.npz*"))


def test_samples_of_latents_are_decoded_or_refused(tmp_path: Path) -> None:
    write_store(tmp_path, per_class=8)
    keys = [
        *TINY, "data.source=latents", f"data.path={tmp_path / 'store'}", "data.size=8",
        "data.channels=4", "data.classes=3", "train.steps=2",
    ]  # fmt: skip
    run = trained(keys)
    vae = vae_facts(tmp_path / "vae")
    assert run.manifest()["attempts"][0]["vae_sha256"] == vae.sha256
    (tmp_path / "sets").mkdir()
    found = drawn(run, tmp_path / "sets", num=5)["arr_0"]
    config = run.config()
    network, decoder = build_network(config).eval(), open_decoder(config)
    ranks = read_ranks()
    labels = torch.from_numpy(drawn(run, tmp_path / "sets", num=5)["arr_1"])
    with process_group(ranks):
        load_weights(run.checkpoints, network)
        latents = sample(
            network, DiffusionObjective(config, ranks.device), labels, config,
            layout=divide(config, world=1), ranks=ranks, then=torch.Tensor.cpu,
        )  # fmt: skip
    expected = (decoder.decode(latents).permute(0, 2, 3, 1) + 1) * 127.5
    assert found.shape == (5, 16, 16, 3)
    assert np.abs(found - expected.numpy()).max() <= 0.5 + 1e-2
    shutil.rmtree(tmp_path / "vae")
    with pytest.raises(DataError, match="vae"):
        draw(run, tmp_path / "gone.npz")
