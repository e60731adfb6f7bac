"""Every other kind of job in README and docs, at small size on a real Slurm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from configs.yaml12 import dump_yaml
from finetune.tiny_flux import make_tiny_flux
from runs.folder import RunFolder
from tests.finetune.conftest import QUICK, paths, run_attempt
from tests.finetune.conftest import TINY as TINY_LORA
from tests.real_runs import TINY, events, trained
from tests.slurm.cluster import Cluster
from tests.slurm.test_launch import A40, Checkout, copy_tree
from tests.slurm.test_pretrain import Jobs
from tests.train.tiny_vae import save_images, save_kl
from train.data.check_data import main as check_data

pytestmark = pytest.mark.long

TWO = ("--nodes=1", "--gpus-per-node=a40:2")


@pytest.fixture
def jobs(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    logs = tmp_path / "logs"
    logs.mkdir()
    monkeypatch.setenv("LOGS", str(logs))
    return Jobs(cluster=cluster, logs=logs)


@pytest.fixture
def checkout(cluster: Cluster, tmp_path: Path) -> Checkout:
    copy_tree(tmp_path / "ditbench")
    return Checkout(root=tmp_path / "ditbench", logs=tmp_path / "logs", cluster=cluster)


def done(jobs: Jobs, kind: str, *arguments: str | Path, flags: tuple[str, ...]) -> RunFolder:
    """Submit a job of one kind, wait until it is done, and return its run."""
    of_kind = replace(jobs, kind=kind)
    job = of_kind.submit(*arguments, flags=flags)
    jobs.cluster.wait(job, timeout=240)
    assert jobs.state(job) == "COMPLETED 0:0", jobs.output(job)
    run = jobs.run_of(job)
    assert events(run)[-1] == "done"
    return run


def ranks(run: RunFolder) -> int:
    return len(run.manifest()["attempts"][0]["placement"])


def test_images_are_encoded_and_trained_on(jobs: Jobs, tmp_path: Path) -> None:
    save_images(tmp_path / "images", per_class=20)
    save_kl(tmp_path / "vae")
    places = {"images": str(tmp_path / "images"), "vae": str(tmp_path / "vae")}
    store = tmp_path / "store"
    file = tmp_path / "tiny.yaml"
    encode = places | {"out": str(store), "size": 16, "shard_examples": 4, "micro_batch": 2}
    file.write_text(dump_yaml({"kind": "encode", "encode": encode}))
    assert ranks(done(jobs, "encode", file, flags=TWO)) == 2
    assert check_data([str(store)]) == 0

    data = {"source": "latents", "path": str(store), "size": 8, "channels": 4, "classes": 3}
    small = {"width": 32, "depth": 1, "heads": 2}
    file.write_text(dump_yaml({"data": data, "model": small, "sample": {"steps": 2}}))
    done(jobs, "pretrain", file, "train.steps=2", "train.global_batch=8", flags=TWO)


def test_a_run_is_sampled_on_two_gpus(jobs: Jobs) -> None:
    run = trained(jobs.logs, [*TINY, "train.steps=2"])
    found = done(jobs, "sample", run.path, "num=8", flags=TWO)
    assert ranks(found) == 2
    assert len(np.load(found.samples / "images.npz")["arr_0"]) == 8


def test_images_are_drawn_from_a_fine_tuning(jobs: Jobs, tmp_path: Path) -> None:
    make_tiny_flux(tmp_path / "flux")
    run = run_attempt(TINY_LORA, [*paths(tmp_path / "flux"), *QUICK, "train.steps=2"])
    found = done(jobs, "infer", run.path, "images=2", flags=("--gpus-per-node=a100:1",))
    assert sum("image_s" in record for record in found.records()) >= 2


def test_the_launcher_submits_a_config_that_names_a_run(
    checkout: Checkout, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGS", str(checkout.logs))
    run = trained(checkout.logs, [*TINY, "train.steps=2"])
    about = (f"run={run.path}", "num=8", *A40)
    found, job = checkout.submit("configs/sample/fid50k.yaml", *about)
    cluster.wait(job, "COMPLETED", timeout=240)
    assert len(np.load(RunFolder(found).samples / "images.npz")["arr_0"]) == 8
