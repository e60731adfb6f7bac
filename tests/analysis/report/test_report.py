"""A report is made of logs alone, is inert, shows everything, and is the same for the same logs."""

import html
import json
import re
import resource
import shutil
import subprocess
import sys
from itertools import product

import pytest
from PIL import Image

from analysis.__main__ import main
from analysis.study.compare import told
from runs.folder import ROOT
from runs.study_folder import StudyFolder, StudyRow
from tests.analysis import foreign_logs as write
from tests.analysis.report.example import HOSTILE, data_of
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

ARCHIVE = ROOT / "docs/measurements/recipes-small.tar.xz"


def part(source: str, name: str) -> str:
    """Return a section of a page."""
    found = re.search(f'<section id="{name}">.*?</section>', source, re.DOTALL)
    assert found is not None, name
    return found[0]


def report(*words, code: int = 0) -> None:
    assert main(["report", *map(str, words)]) == code


def test_the_same_logs_give_the_same_bytes(tmp_path):
    """In two processes, since an archive is unpacked into a folder of another name each time."""
    for name in ("a", "b"):
        archive = ROOT / "docs/measurements/c-train-small.tar.xz"
        command = [sys.executable, "-m", "analysis", "report", str(archive)]
        (tmp_path / name).mkdir()
        command += ["--out", str(tmp_path / name / "r.html")]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    first, second = (
        {path.relative_to(tmp_path / name): path.read_bytes()
         for path in sorted((tmp_path / name).rglob("*")) if path.is_file()}
        for name in ("a", "b")
    )  # fmt: skip
    assert first == second
    assert not any(b"/tmp/ditbench-" in content for content in first.values())


def test_hostile_names_are_inert(page):
    source = page.read_text()
    assert "<img src=x" not in source
    assert "\u202e" not in source
    assert "\x1b" not in source
    bodies = re.sub("<(style|script)>.*?</\\1>", "", source, flags=re.DOTALL)
    assert re.search(r"<[^>]* on\w+=\"", bodies) is None
    assert " style=" not in bodies
    names = data_of(page)["columns"]["run"]
    assert HOSTILE[0].replace("/", "\u2215") in names


def test_the_policy_allows_two_scripts_and_one_style_by_their_hashes(page):
    source = page.read_text()
    assert len(re.findall("<script>", source)) == 2
    policy = " ".join(html.unescape(re.search(r'content="(default-src[^"]*)"', source)[1]).split())
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-\S{44}'; script-src 'sha256-\S{44}' "
        r"'sha256-\S{44}'; img-src data:; base-uri 'none'; form-action 'none'",
        policy,
    )


def test_every_part_is_there_and_pictures_stand_first(page):
    source = page.read_text()
    found = re.findall(r'<section id="(\w+)">', source)
    assert found == ["samples", "verdicts", "cells", "runs", "curves", "time", "findings",
                     "compare", "remarks"]  # fmt: skip


def test_a_damaged_image_and_a_folder_without_one_are_left_out(tmp_path):
    folders = [generate_run(tmp_path / name, SyntheticRun(intervals=20)) for name in "abc"]
    for folder in folders[:2]:
        (folder / "samples").mkdir()
    Image.effect_noise((500, 400), 60).save(folders[0] / "samples" / "step-000000800.png")
    (folders[1] / "samples" / "x.png").write_bytes(b"no image")
    report(*folders, "--out", tmp_path / "r.html")
    assert part((tmp_path / "r.html").read_text(), "samples").count("data:image/jpeg") == 1


def test_repeats_are_one_arm_and_the_grid_tells_the_order(tmp_path):
    """The baseline has the first level of every axis, whatever the cells are called."""
    study = StudyFolder(tmp_path / "study-1")
    rows = []
    for workers, repeat in product((4, 0), (1, 2, 3)):
        name = f"w{workers}_r{repeat}"
        truth = SyntheticRun(
            seed=repeat, intervals=30, steps_per_s=4 + workers,
            overrides=(f"data.workers={workers}", "question='What do workers cost?'"),
        )  # fmt: skip
        generate_run(study.cell(name), truth)
        levels = {"data.workers": workers}
        rows.append(StudyRow(
            index=len(rows), order=0, cell=name, repeat=repeat, shape="s", digest="", levels=levels
        ))  # fmt: skip
    study.study_file.write_text("base: x.yaml\naxes: {data.workers: [4, 0]}\n")
    study.write_rows(reversed(rows))
    report(study.path, "--out", tmp_path / "r.html")
    source = (tmp_path / "r.html").read_text()
    assert "What do workers cost? 6 runs (ditbench), compared with w4_r1 (+2 alike)" in source
    assert source.count("<li>") == 1
    assert re.search(r"w0_r1 \(\+2 alike\) is 0\.(50|499)\d*x as fast as w4_r1", source)


def test_logs_of_others_and_runs_of_one_name_are_told_apart(tmp_path):
    for folder in ("x", "y"):
        generate_run(tmp_path / folder / "run", SyntheticRun(intervals=20))
    (tmp_path / "theirs.txt").write_bytes(write.dit(write.synthetic_log(n=60)))
    report(tmp_path, "--out", tmp_path / "r.html")
    names = data_of(tmp_path / "r.html")["columns"]["run"]
    assert any(name.endswith("x/run") for name in names)
    assert any(name.endswith("theirs.txt") for name in names)


def test_what_cannot_be_written_or_is_no_report_is_one_line(runs, tmp_path, capsys):
    report(runs, "--out", tmp_path / "nowhere" / "r.html", code=2)
    assert "cannot be written" in capsys.readouterr().err
    (tmp_path / "notes.txt").write_text("mine")
    report("--check", tmp_path / "notes.txt", code=2)
    assert "no record of a report" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_verdicts_are_those_of_compare(tmp_path, capsys):
    report(ARCHIVE, "--out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    capsys.readouterr()
    assert main(["compare", str(ARCHIVE), "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)["comparisons"]
    assert len(judged) >= 7
    # Verdicts has the sentences, also those on quality, each with its own cause; tables have words.
    assert all(html.escape(told(row)) in part(page, "verdicts") for row in judged)
    assert all(html.escape(row["word"]) in part(page, "cells") for row in judged)


def test_the_values_to_filter_by_follow_the_heads(page):
    heads = re.findall('data-name="([^"]*)"', part(page.read_text(), "runs"))
    columns = data_of(page)["columns"]
    assert {"run", "state", "loss", "gpu", "ranks"} <= {*heads} <= {*columns}
    assert len(columns["loss"]) == 4


def test_remarks_name_sources_as_the_record_does_and_a_config_stays(tmp_path):
    source = tmp_path / "logs"
    folder, broken = (
        generate_run(source / name, SyntheticRun(intervals=20)) for name in ("run", "broken")
    )
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace("  path: null", f"  path: {source}", 1))
    (broken / "config.yaml").write_text("[")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("no record\n")
    report(source, "--out", tmp_path / "r.html", code=1)
    page = (tmp_path / "r.html").read_text()
    assert "logs/broken/config.yaml" in part(page, "unread")
    assert f">{source}</td>" in part(page, "settings")
    assert str(tmp_path) not in page.replace(f">{source}</td>", "")
    assert "logs/run/metrics.jsonl: 1 lines are no records" in part(page, "remarks")


def test_a_diverged_run_is_shown_with_its_infinite_loss(tmp_path):
    folder = generate_run(tmp_path / "run", SyntheticRun(intervals=20))
    text = (folder / "metrics.jsonl").read_text().splitlines()
    last = next(n for n in range(len(text) - 1, 0, -1) if '"loss"' in text[n])
    text[last] = re.sub(r'"loss": [\d.]+', '"loss": Infinity', text[last])
    (folder / "metrics.jsonl").write_text("\n".join(text) + "\n")
    report(folder, "--out", tmp_path / "r.html")
    data = data_of(tmp_path / "r.html")
    assert data["columns"]["step"] == [200]
    assert len(data["curves"][0]["curves"]["loss"]["y"]) == 19


def test_an_archive_has_bands_of_its_arms_and_no_arm_is_hidden(tmp_path):
    page = tmp_path / "recipes-small.html"
    report(ARCHIVE, "--out", page)
    curves = data_of(page)["curves"]
    means = [one for one in curves if "mean" in one]
    # The loss of the dispersive arm is below 0, and has no geometric mean.
    assert len(means) == 7
    assert all(len(one["rows"]) == 3 and "low" in one["curves"]["loss"] for one in means)
    alone = {one["name"] for one in curves if one.get("alone")}
    assert alone == {f"dispersive_s{seed}" for seed in range(3)}
    source = page.read_text()
    assert "only losses of the same quantity can be compared" in part(source, "curves")
    assert "is not compared with" in part(source, "verdicts")


@pytest.mark.long
def test_two_hundred_runs_take_seconds_and_less_than_ten_megabytes(tmp_path):
    first = generate_run(tmp_path / "logs" / "run0", SyntheticRun(intervals=120))
    for number in range(1, 200):
        shutil.copytree(first, tmp_path / "logs" / f"run{number}")
    out = tmp_path / "report.html"
    command = [
        sys.executable,
        "-m",
        "analysis",
        "report",
        str(tmp_path / "logs"),
        "--out",
        str(out),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of one processor, and half more, since other tests slow it.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 7.5
    assert out.stat().st_size < 10e6
