"""Figures for a paper: their size, fonts, intervals and captions, and what has none."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

MEASURED = Path("docs/measurements")


@pytest.fixture
def figure(tmp_path, capsys):
    """The exit code, the file, its caption and the remarks of `export --figure`."""

    def draw(kind: str, source: Path, *flags: str, name: str = "f.pdf"):
        out = tmp_path / name
        code = main(["export", "--figure", kind, str(source), "--out", str(out), *flags])
        output = capsys.readouterr()
        return code, out, output.out, output.err

    return draw


def arms(folder: Path, *, seeds: int) -> Path:
    for rate in (4.0, 6.0):
        for seed in range(seeds):
            truth = SyntheticRun(steps_per_s=rate, seed=seed, intervals=40, cv=0.01 * (seed + 1),
                                 overrides=(f"data.workers={int(rate)}",))  # fmt: skip
            generate_run(folder / f"r{rate:.0f}s{seed}", truth)
    return folder


def width_in(pdf: Path) -> float:
    found = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", pdf.read_bytes())
    assert found
    return float(found[1]) / 72


@pytest.mark.parametrize(
    ("kind", "source"),
    [("cells", "a-grid"), ("loss", "recipes"), ("scaling", "d-grid"), ("noise", "c-1")],
)
def test_each_kind_is_drawn_at_its_width_with_truetype_and_a_caption(figure, kind, source):
    flags = ("--metric", "validation_loss") if kind == "loss" else ()
    path = MEASURED / f"{source}-small.tar.xz"
    code, pdf, caption, _ = figure(kind, path, "--width", "84mm", *flags)
    assert code == 0
    assert width_in(pdf) == pytest.approx(84 / 25.4, abs=0.01)
    assert b"/FontFile2" in pdf.read_bytes()
    assert b"/Type3" not in pdf.read_bytes()
    assert pdf.with_suffix(".txt").read_text() == caption
    for said in ("95 %", "n = ", "Clock: ", "AMD EPYC"):
        assert said in caption


def test_the_same_runs_give_the_same_bytes_in_any_process(tmp_path):
    logs = arms(tmp_path / "logs", seeds=1)
    for form in ("pdf", "svg"):
        seen = set()
        for seed in ("1", "2"):
            out = tmp_path / f"{seed}.{form}"
            command = [
                sys.executable,
                "-m",
                "analysis",
                "export",
                "--figure",
                "loss",
                logs,
                "--out",
                out,
            ]
            subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
            seen.add(out.read_bytes())
        assert len(seen) == 1


def test_speedups_and_their_intervals_stand_beside_the_dots(figure, tmp_path, capsys):
    logs = arms(tmp_path / "logs", seeds=3)
    assert main(["cells", str(logs), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["cells"][1]
    drawn = []
    from analysis.study import plots

    original = plots.interval_text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plots, "interval_text", lambda *a: drawn.append(a) or original(*a)
        )  # fmt: skip
        code, _, caption, _ = figure("cells", logs)
    assert code == 0
    assert drawn[1][:2] == (row["low"], row["high"])
    assert "intervals between runs; n = 3 runs each." in caption


def test_a_caption_says_which_intervals_are_within_a_run(figure, tmp_path):
    logs = arms(tmp_path / "logs", seeds=3)
    for seed in (1, 2):
        shutil.rmtree(logs / f"r6s{seed}")
    mixed = "intervals between runs; within the run where both cells have one; n = 1 to 3 runs each"
    assert mixed in figure("cells", logs)[2]
    for seed in (1, 2):
        shutil.rmtree(logs / f"r4s{seed}")
    assert "intervals within each run; n = 1 run each" in figure("cells", logs)[2]


def test_an_arm_has_the_label_of_its_first_seed(figure, monkeypatch):
    from analysis.measure import loss_plot

    drawn, original = [], loss_plot.losses_figure

    def keep(found, labels, **options):
        drawn.append((found, labels))
        return original(found, labels, **options)

    monkeypatch.setattr(loss_plot, "losses_figure", keep)
    source = MEASURED / "recipes-small.tar.xz"
    assert figure("loss", source, "--metric", "validation_loss")[0] == 0
    ((found, labels),) = drawn
    assert len(labels) == 8
    for arm, label in zip(found, labels, strict=True):
        assert label.endswith("_s0")
        stem = label.removesuffix("0")
        assert [curve.log.name for curve in arm] == [f"{stem}{seed}" for seed in range(3)]


def test_repeats_of_one_seed_are_no_interval_of_the_loss(figure):
    _, _, caption, _ = figure("loss", MEASURED / "d-grid-small.tar.xz")
    assert "n = 1 seed each" in caption
    assert "a line each, no interval" in caption


def test_three_seeds_give_a_band_and_two_do_not(tmp_path):
    from analysis.measure.loss import loss_curve
    from analysis.measure.loss_plot import losses_figure
    from analysis.read.find import read_logs

    logs = read_logs([str(arms(tmp_path, seeds=3))])
    curves = [loss_curve(log, by="step") for log in logs]
    for seeds, bands in ((3, 1), (2, 0)):
        both = [curves[:seeds], curves[3 : 3 + seeds]]
        top, below = losses_figure(both, ["a", "b"], by="step", height=3).axes
        assert len(top.collections) == 2 * bands
        # The losses of a seed are equal in both arms: the ratio is 1, with an interval of no width.
        assert len(below.collections) == bands
        for band in below.collections:
            assert band.get_paths()[0].vertices[:, 1] == pytest.approx(1)


def test_seeds_without_a_range_in_common_are_drawn_one_by_one(tmp_path):
    from analysis.measure.loss import loss_curve
    from analysis.measure.loss_plot import losses_figure
    from analysis.read.find import read_logs

    curves = [loss_curve(log, by="step") for log in read_logs([str(arms(tmp_path, seeds=3))])][:3]
    apart = [replace(curve, x=curve.x + 1000 * n) for n, curve in enumerate(curves)]
    (only,) = losses_figure([apart], ["a"], by="step", height=3).axes
    assert (len(only.lines), len(only.collections)) == (3, 0)


def test_what_cannot_be_drawn_is_refused_in_one_line(figure, tmp_path):
    logs = arms(tmp_path / "logs", seeds=1)
    for kind, source, why in (
        ("cells", MEASURED / "c-1-small.tar.xz", "no training has begun in it"),
        ("scaling", logs, "no two runs differ in the number of ranks only"),
        ("noise", logs, "recorded no gradient noise"),
        ("loss", MEASURED / "recipes-small.tar.xz", "their loss is of another objective"),
    ):
        code, pdf, _, err = figure(kind, source)
        assert code == 2
        assert why in err
        assert err.count("\n") == 1
        assert not pdf.exists()


@pytest.mark.parametrize("flags", ["f.png", "f.pdf --width 8", "f.pdf --width 1in"])
def test_a_bad_file_or_width_names_what_is_expected(flags, capsys):
    with pytest.raises(SystemExit):
        main(["export", "--figure", "cells", "logs", "--out", *flags.split()])
    err = capsys.readouterr().err
    assert "neither in .pdf nor in .svg" in err or "2 to 20 inches, such as 3.3in or 84mm" in err
