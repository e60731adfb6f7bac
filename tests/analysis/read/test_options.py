"""A user's pattern, columns and facts; and the messages on files without a run."""

import json

import pytest

from analysis.__main__ import main
from analysis.read.find import read_logs
from analysis.read.options import parse_options, reading_with
from tests.analysis import foreign_logs as write
from tests.analysis.foreign_logs import synthetic_log


def rows_of(capsys, *arguments):
    code = main([*arguments, "--json"])
    output = capsys.readouterr()
    return code, json.loads(output.out) if output.out else None, output.err


def test_a_pattern_reads_a_log_of_no_known_format(tmp_path, capsys):
    lines = [f"<{n}> goodness of fit {3 / n:.4f} after {n * 2}s" for n in range(1, 40)]
    (tmp_path / "x").write_text("\n".join(lines))
    pattern = r"<(?P<step>\d+)> goodness of fit (?P<loss>\S+) after (?P<elapsed_s>\d+)s"
    code, [row], _ = rows_of(capsys, "runs", str(tmp_path / "x"), "--pattern", pattern)
    assert code == 0
    assert (row["step"], row["format"]) == (39, "pattern")
    assert row["loss"] == pytest.approx(3 / 39, abs=1e-4)


@pytest.mark.parametrize("pattern", ["(", "loss (?P<loss>.*)"])
def test_a_pattern_that_cannot_be_used_is_refused(pattern, tmp_path, capsys):
    (tmp_path / "x").write_text("a 1\n")
    assert main(["runs", str(tmp_path / "x"), "--pattern", pattern]) == 2
    assert "--pattern" in capsys.readouterr().err


def test_columns_are_named_by_the_user(tmp_path, capsys):
    text = "n,cost,x\n" + "\n".join(f"{n},{3 / n},{n}" for n in range(1, 30))
    (tmp_path / "x.csv").write_text(text)
    assert main(["runs", str(tmp_path / "x.csv")]) == 2
    assert "--columns" in capsys.readouterr().err
    code, [row], _ = rows_of(
        capsys, "runs", str(tmp_path / "x.csv"), "--columns", "step=n,loss=cost"
    )
    assert (code, row["step"]) == (0, 29)
    with reading_with(parse_options(pattern=None, columns="step=n,loss=cost,batch=x", facts=[])):
        [log] = read_logs([str(tmp_path / "x.csv")])
    assert log.last("batch") == 29


def test_facts_that_a_log_lacks_are_set_or_read_from_its_path(tmp_path, capsys):
    for gpus in (1, 2, 4):
        planted = synthetic_log(steps_per_s=0.5 * gpus**0.9, seed=gpus)
        (tmp_path / f"run-n{gpus}.log").write_bytes(write.dit(planted))
    facts = ["--set", r"gpus=n(\d+)", "--set", "batch=256"]
    code, found, _ = rows_of(capsys, "runs", str(tmp_path), *facts)
    assert code == 0
    assert [row["ranks"] for row in found] == [1, 2, 4]
    assert found[0]["images_per_s"] == pytest.approx(128, rel=0.02)


def test_a_logs_yaml_names_patterns_columns_and_facts_by_glob(tmp_path):
    (tmp_path / "a-8.log").write_text("\n".join(f"it{n} L{3 / n:.4f}" for n in range(1, 40)))
    (tmp_path / "b.csv").write_text("n,cost\n" + "\n".join(f"{n},{1 / n}" for n in range(1, 9)))
    (tmp_path / "logs.yaml").write_text(
        """"a-*.log":
  pattern: 'it(?P<step>\\d+) L(?P<loss>\\S+)'
  set:
    gpus: 'a-(\\d+)'
"*.csv":
  columns: {step: n, loss: cost}
"""
    )
    first, second = read_logs([str(tmp_path)])
    assert (len(first), first.facts["ranks"]) == (39, 8)
    assert second.column("loss").tolist() == [1 / n for n in range(1, 9)]


def test_a_damaged_logs_yaml_is_named(tmp_path, capsys):
    (tmp_path / "x.log").write_bytes(write.dit(synthetic_log(n=20)))
    (tmp_path / "logs.yaml").write_text("'*': 5\n")
    assert main(["speed", str(tmp_path)]) == 2
    assert "logs.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "git lfs pull"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "neither text nor a known binary format"),
        (b"", "an empty file"),
        (b"\x1f\x8b\x08" + bytes(range(99)), "gunzip"),
        (b'{"name": "x", "size": 3}', "JSON with keys name, size"),
        (b"hello\nworld 5\n", "'world 5'"),
    ],
)
def test_a_file_without_a_run_is_described(data, message, tmp_path, capsys):
    (tmp_path / "x").write_bytes(data)
    assert main(["runs", str(tmp_path / "x")]) == 2
    error = capsys.readouterr().err
    assert "no run in it" in error
    assert message in error


def test_files_of_a_folder_that_hold_no_run_are_counted(tmp_path, capsys):
    (tmp_path / "a.log").write_bytes(write.dit(synthetic_log(n=20)))
    for name in ("b.log", "c.log"):
        (tmp_path / name).write_text("hello 1\n")
    (tmp_path / "notes.md").write_text("notes")
    assert main(["runs", str(tmp_path)]) == 0
    assert "1 files read, 2 not: 2 text" in capsys.readouterr().err


@pytest.mark.parametrize("sign", [",", "\t", ";"])
def test_a_table_of_epochs_states_its_axis(sign, tmp_path):
    head = sign.join(["epoch", "time", "train/box_loss", "val/loss"])
    rows = [sign.join(map(str, (n, n * 60.5, 3 / n, 4 / n))) for n in range(1, 20)]
    (tmp_path / "x").write_text("\n".join([head, *rows]))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.axis == "epoch"
    assert log.column("elapsed_s")[-1] == pytest.approx(19 * 60.5)
    assert log.evaluations[0]["val/loss"] == 4


def test_a_statistics_file_of_edm_counts_images(tmp_path):
    rows = [
        {"Progress/kimg": {"num": 1, "mean": 4.0 * n, "std": 0}, "timestamp": 1.7e9 + n * 120,
         "Loss/loss": {"num": 8, "mean": 1 / n, "std": 0.1}}
        for n in range(1, 30)
    ]  # fmt: skip
    (tmp_path / "stats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    [log] = read_logs([str(tmp_path / "stats.jsonl")])
    assert log.axis == "sample"
    assert log.step.tolist() == [4000 * n for n in range(1, 30)]
    assert log.column("loss") == pytest.approx([1 / n for n in range(1, 30)])


def test_formats_says_how_logs_are_read(tmp_path, capsys):
    (tmp_path / "x").write_bytes(write.dit(synthetic_log(n=20)))
    code, [row], _ = rows_of(capsys, "runs", "--formats", str(tmp_path / "x"))
    assert code == 0
    assert (row["format"], row["axis"], row["clocks"]) == (
        "key: value",
        "step",
        "wall, printed",
    )
