"""Runs packed by `archive` say the same as the folders, and nothing of the machines."""

import io
import json
import lzma
import re
import tarfile
from pathlib import Path

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two runs; a manifest, a config and an event name a host and somebody's folders."""
    for number in (0, 1):
        truth = SyntheticRun(
            seed=number, intervals=30, overrides=(f"data.workers={number}",), gpu="NVIDIA A100",
            facts={
                "command": "jobs/pretrain.sbatch /home/anna/ditbench/x.yaml a=1/2",
                "host": "gpu-17",
                "slurm": {"nodelist": "gpu-[17-18]", "cluster": "discovery"},
            },
        )  # fmt: skip
        folder = generate_run(tmp_path / "logs" / f"run{number}", truth)
        manifest = folder / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"n1"', '"gpu-17.cluster.edu"'))
        event = {"time": 1.0, "attempt": 1, "event": "queued", "message": "on gpu-17.cluster.edu"}
        records = folder / "metrics.jsonl"
        records.write_text(json.dumps(event) + "\n" + records.read_text())
    return tmp_path / "logs"


def test_an_archive_says_the_same_as_the_folders(logs, tmp_path, capsys):
    out = tmp_path / "kept.tar.xz"
    assert main(["archive", str(logs), "--out", str(out)]) == 0
    capsys.readouterr()
    tables = []
    for source in (logs, out):
        assert main(["cells", str(source), "--csv"]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    assert tables[0].count("\n") == 3


def test_an_archive_names_no_machine_and_no_folder(logs, tmp_path):
    out = tmp_path / "kept.tar.xz"
    main(["archive", str(logs), "--out", str(out)])
    held = lzma.decompress(out.read_bytes()).decode()
    for name in ("gpu-17", "gpu-[", "cluster.edu", "discovery"):
        assert name not in held
    assert "anna" not in held
    assert "jobs/pretrain.sbatch x.yaml a=1/2" in held
    assert re.search(r'"message": "on node\d"', held)


def test_the_same_runs_give_the_same_archive(logs, tmp_path):
    for name in ("a.tar.xz", "b.tar.xz"):
        main(["archive", str(logs), "--out", str(tmp_path / name)])
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()


def test_what_is_there_is_not_written_over(logs, tmp_path, capsys):
    out = tmp_path / "kept.tar.xz"
    out.write_text("mine")
    assert main(["archive", str(logs), "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert out.read_text() == "mine"


@pytest.mark.parametrize("name", ["../out/config.yaml", "/tmp/config.yaml"])
def test_an_archive_that_leads_outside_is_refused(name, tmp_path, capsys):
    file = tmp_path / "bad.tar"
    with tarfile.open(file, "w") as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    assert main(["runs", str(file)]) == 2
    assert "outside the archive" in capsys.readouterr().err
    assert not (tmp_path.parent / "out").exists()


def test_a_damaged_archive_is_told(logs, tmp_path, capsys):
    out = tmp_path / "kept.tar.xz"
    main(["archive", str(logs), "--out", str(out)])
    out.write_bytes(out.read_bytes()[:500])
    assert main(["runs", str(out)]) == 2
    assert "a damaged archive" in capsys.readouterr().err


def test_an_archive_holds_no_file_that_a_run_links_to(logs, tmp_path, capsys):
    (tmp_path / "secret").write_text("seed: 1\n")
    (logs / "run0" / "config.yaml").unlink()
    (logs / "run0" / "config.yaml").symlink_to(tmp_path / "secret")
    assert main(["archive", str(logs), "--out", str(tmp_path / "kept.tar.xz")]) == 2
    assert f"{logs / 'run0' / 'config.yaml'}" in capsys.readouterr().err
    assert not (tmp_path / "kept.tar.xz").exists()
