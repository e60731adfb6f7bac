"""`jobs/encode.sbatch` without Slurm: several agents, kills, resumes, training on the store."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from configs.yaml12 import dump_yaml
from runs.folder import find_runs
from tests.real_runs import (
    body,
    clean_environment,
    continued,
    events,
    opened,
    rank_processes,
    torchrun,
)
from tests.train.latent_stores import contents
from tests.train.tiny_vae import save_images, save_kl


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create 60 images, a VAE, and the store that one rank makes of them, one image per shard."""
    folder = tmp_path_factory.mktemp("made")
    save_images(folder / "images", per_class=20)
    save_kl(folder / "vae")
    torchrun(opened(config(folder, folder / "store"), []), ranks=1)
    return folder


def config(folder: Path, out: Path) -> Path:
    paths = {"images": str(folder / "images"), "vae": str(folder / "vae"), "out": str(out)}
    file = out.parent / "tiny.yaml"
    keys = {"encode": paths | {"size": 16, "shard_examples": 1}, "log": {"tensorboard": False}}
    file.write_text(dump_yaml({"kind": "encode"} | keys))
    return file


@pytest.mark.long
def test_two_agents_killed_half_way_and_resumed_make_the_store_of_one_rank(
    made: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    process = subprocess.Popen(
        ["bash", "jobs/encode.sbatch", str(config(made, store))],
        env=clean_environment(LOGS=str(tmp_path / "logs"), LOCAL_NODES="2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while process.poll() is None and len(list(store.glob("*.safetensors"))) < 4:
        time.sleep(0.005)
    (run,) = find_runs(tmp_path / "logs")
    for pid in rank_processes(run):
        os.kill(pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1, output
    assert events(run)[-1] == "failed"
    begun = len(list(store.glob("*.safetensors")))
    assert 4 <= begun < 60
    assert not (store / "index.json").exists()

    continued(run, ranks=2)
    assert events(run)[-1] == "done"
    again = [record for record in run.records() if record["attempt"] == 2]
    assert begun - 2 <= again[0]["step"] <= begun
    assert (again[-1]["step"], again[-1]["images"]) == (60, 60)
    assert contents(store) == contents(made / "store")
    done = body(run.path, logs=tmp_path / "logs", job="encode")
    assert "done already" in done.stderr


def test_the_error_for_a_config_of_another_job_names_that_job(made: Path, tmp_path: Path) -> None:
    file = config(made, tmp_path / "store")
    done = body(file, logs=tmp_path / "logs", check=False)
    assert done.returncode == 2
    assert "it belongs to jobs/encode.sbatch" in done.stderr
