"""A site is made of logs alone, the same for the same logs, and checked against them."""

import html
import json
import re
import resource
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.gpus.energy import energy
from analysis.measure.speed import group_arms, measure_rates
from analysis.read.find import read_logs
from analysis.site.curves import curves, mean_curve, thinned
from configs.table import heading
from runs.folder import ROOT
from tests.analysis.report.example import HOSTILE, data_of
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

ARCHIVE = ROOT / "docs/measurements/recipes-small.tar.xz"


def test_the_same_input_gives_the_same_bytes(tmp_path):
    """In two processes, since an archive is unpacked into a folder of another name each time."""
    for name in ("a", "b"):
        out = tmp_path / name / "public"
        command = [
            sys.executable,
            "-m",
            "analysis",
            "report",
            "--site",
            str(ROOT / "docs/measurements"),
        ]
        command[-1] += "/c-train-small.tar.xz"
        subprocess.run([*command, "--out", str(out)], check=True, capture_output=True, cwd=ROOT)
    first, second = (
        {path.relative_to(tmp_path / name): path.read_bytes()
         for path in sorted((tmp_path / name).rglob("*")) if path.is_file()}
        for name in ("a", "b")
    )  # fmt: skip
    assert first == second
    assert not any(b"/tmp/ditbench-" in content for content in first.values())


def test_hostile_names_are_inert(public):
    for page in public.rglob("*.html"):
        source = page.read_text()
        assert "<img src=x" not in source
        assert "\u202e" not in source
        assert len(re.findall("<script", source)) == 2
        assert re.search(r"[^\w-]on\w+=\"", source) is None
        assert " style=" not in source
    names = data_of(public / "index.html")["columns"]["run"]
    assert HOSTILE[0].replace("/", "\u2215") in names


def test_the_policy_allows_one_script_and_one_style_by_their_hashes(public):
    source = (public / "runs" / "one.html").read_text()
    policy = html.unescape(re.search(r'content="(default-src[^"]*)"', source)[1])
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-\S{44}'; img-src data: 'self'; "
        r"script-src 'sha256-\S{44}' 'strict-dynamic'; base-uri 'none'; form-action 'none'",
        policy,
    )


@pytest.mark.parametrize("n", [1, 7, 100, 101, 5000])
def test_thinning_keeps_the_ends_the_least_and_the_largest(n):
    y = np.random.default_rng(n).standard_normal(n)
    kept = thinned(y, 100)
    assert len(kept) <= 100
    assert (np.diff(kept) > 0).all()
    assert {0, n - 1, int(y.argmin()), int(y.argmax())} <= set(kept.tolist())


def test_a_page_holds_at_most_two_thousand_points_a_curve(tmp_path):
    folder = generate_run(tmp_path / "run", SyntheticRun(intervals=5000))
    (log,) = read_logs([str(folder)])
    loss = curves(log, most=2000)["loss"]
    assert 1900 <= len(loss["y"]) <= 2000
    assert max(loss["y"]) == pytest.approx(log.column("loss").max(), rel=1e-5)
    assert len(loss["x"]["step"]) == len(loss["x"]["wall"]) == len(loss["y"])
    # 64 images a step, and one rank: these axes are factors of others.
    assert loss["x"]["images"] == ["step", 64.0]
    assert loss["x"]["gpu_hours"] == ["train_s", pytest.approx(1 / 3600)]
    assert "energy_kwh" not in loss["x"]


def test_energy_is_an_axis_if_it_is_recorded(tmp_path):
    """Two GPUs of 360 W use 0.0002 kWh a second; the counters are not those of the run's begin."""
    truth = SyntheticRun(
        intervals=200, cv=0, ranks=2, gpu_facts={}, gpu_readings={"power_w": 360.0}
    )
    (log,) = read_logs([str(generate_run(tmp_path / "run", truth))])
    x = curves(log, most=100)["loss"]["x"]
    rate = np.diff(x["energy_kwh"]) / np.diff(x["wall"])
    assert np.median(rate) == pytest.approx(2 * 360 / 3.6e6, rel=0.02)
    assert x["energy_kwh"][-1] == pytest.approx(energy(log).kwh, rel=0.03)


def test_the_band_of_an_arm_is_students_interval_over_its_seeds(tmp_path):
    for seed in range(3):
        generate_run(tmp_path / str(seed), SyntheticRun(seed=seed, intervals=20, loss_noise=0.1))
    logs = read_logs([str(tmp_path)])
    (arm,) = group_arms(measure_rates(logs))
    band = mean_curve(arm, most=100)
    losses = np.array([log.column("loss")[4] for log in logs])
    half = 4.3026527 * losses.std(ddof=1) / np.sqrt(3)
    assert band["y"][4] == pytest.approx(losses.mean(), rel=1e-4)
    assert band["high"][4] - band["low"][4] == pytest.approx(2 * half, rel=1e-3)
    assert set(band["x"]) == {"step", "images"}


def test_a_seed_without_a_loss_leaves_the_band_of_the_others(tmp_path):
    for seed in range(4):
        folder = generate_run(tmp_path / str(seed), SyntheticRun(seed=seed, intervals=20))
    records = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(records.replace('"loss"', '"other"'))
    (arm,) = group_arms(measure_rates(read_logs([str(tmp_path)])))
    assert len(arm.runs) == 4
    assert mean_curve(arm, most=100)["seeds"] == 3


def test_repeats_of_one_seed_have_no_band(tmp_path):
    for repeat in range(3):
        generate_run(tmp_path / str(repeat), SyntheticRun(intervals=20))
    (arm,) = group_arms(measure_rates(read_logs([str(tmp_path)])))
    assert mean_curve(arm, most=100) == {}


def test_a_verdict_names_its_lines_and_the_command_that_gives_it(public, monkeypatch, capsys):
    source = (public / "runs" / "index.html").read_text()
    verdicts = re.findall(r"<li>.*?</li>", source, re.DOTALL)
    verdict = next(one for one in verdicts if "<small>two" in one)
    assert re.search(r"\.\./\.\./runs/two/metrics\.jsonl</a>, lines 3 to 122", verdict)
    monkeypatch.chdir(public / "runs")
    speed, loss = (shlex.split(html.unescape(one)) for one in re.findall("<code>(.*?)<", verdict))
    main([*speed[1:], "--json"])
    row = json.loads(capsys.readouterr().out)[1]
    assert f"<b>{row['speedup']:.2f}x</b>" in verdict
    main([*loss[1:], "--json"])
    assert "different" in capsys.readouterr().out
    assert "loss different" in verdict


def test_each_section_that_judges_names_the_command_that_gives_it(tmp_path, monkeypatch, capsys):
    out = tmp_path / "public"
    assert main(["report", "--site", str(ARCHIVE), "--out", str(out)]) == 0
    page = out / "recipes-small" / "index.html"
    monkeypatch.chdir(page.parent)
    for name, key in (("cells", "speedup"), ("effects", "percent"), ("quality", "ratio")):
        section = re.search(f'<section id="{name}">.*?</section>', page.read_text(), re.DOTALL)[0]
        said = shlex.split(html.unescape(re.search("<code>(.*?)</code>", section)[1]))
        assert "recipes-small.tar.xz" in said[2]
        capsys.readouterr()
        assert main([*said[1:], "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        rows = found.get(name, found) if isinstance(found, dict) else found
        values = [row[key] for row in rows if row.get(key) is not None]
        assert len(values) >= 7
        shown = {"speedup": "{:.2f}x", "percent": "{:+.1f}", "ratio": ">{:.3g}"}[key]
        assert all(shown.format(value) in section for value in values)


def test_the_page_of_a_run_has_no_columns_that_compare_it(public):
    figures = (public / "runs" / "one.html").read_text().partition('id="curves"')[0]
    assert "images/s" in figures
    assert not any(f">{word}<" in figures for word in ("front", "speedup", "baseline"))


def test_curves_on_paper_are_named(public):
    drawn = re.search('<svg class="plain".*?</svg>', (public / "runs/index.html").read_text())
    assert all(f"&#8212; {name}</text>" in drawn[0] for name in ("one", "two"))


def test_runs_of_an_archive_are_named_through_it(tmp_path, capsys):
    assert main(["speed", f"{ARCHIVE}/cells/adamw_s0", f"{ARCHIVE}/cells/muon_s0", "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["adamw_s0", "muon_s0"]


def test_prices_give_costs_and_are_checked_too(runs, tmp_path, capsys):
    rates, out = tmp_path / "rates.yaml", tmp_path / "public"
    rates.write_text("A40: 2\nH100: 5\n")
    both = [str(runs / "one"), str(runs / "two")]
    assert main(["report", "--site", *both, "--out", str(out), "--rates", str(rates)]) == 0
    figures = data_of(out / "index.html")["columns"]
    assert figures["money"] == [
        pytest.approx(hours * price)
        for hours, price in zip(figures["gpu_hours"], (5, 2), strict=True)
    ]
    assert main(["report", "--site", "--check", str(out)]) == 0
    rates.write_text("A40: 3\nH100: 5\n")
    capsys.readouterr()
    assert main(["report", "--site", "--check", str(out)]) == 1
    assert "rates.yaml: not the file" in capsys.readouterr().err


def test_claims_have_a_badge_and_the_command_that_judges_them(runs, tmp_path, capsys):
    claims, out = tmp_path / "claims.yaml", tmp_path / "public"
    one, two, none = (str(folder) for folder in (runs / "one", runs / "two", tmp_path / "none"))
    claims.write_text(
        f"- {{text: a rate, quantity: steps_per_s, runs: [{one}], value: 4.0}}\n"
        f"- {{text: a ratio, quantity: speedup, runs: [{one}, {two}], value: 3.0}}\n"
        f"- {{text: nothing, quantity: loss, runs: [{none}], value: 3.0}}\n"
    )
    assert main(["report", "--site", one, two, "--out", str(out), "--claims", str(claims)]) == 0
    source = (out / "index.html").read_text()
    for kind, verdict in (("good", "agrees"), ("bad", "disagrees"), ("open", "undecidable")):
        assert f'<span class="badge {kind}">{verdict}</span>' in source
    assert "ditbench audit ../claims.yaml" in source
    claims.write_text(claims.read_text().replace("3.0", "1.25", 1))
    capsys.readouterr()
    assert main(["report", "--site", "--check", str(out), "--csv"]) == 1
    captured = capsys.readouterr()
    assert "claims.yaml: not the file" in captured.err
    assert "1.25" in captured.out


def test_a_folder_of_other_files_is_not_written_into(runs, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["report", "--site", str(runs), "--out", str(tmp_path)]) == 2
    assert "holds something else than a site" in capsys.readouterr().err
    assert main(["report", "--site", str(runs)]) == 2
    assert "--out is missing" in capsys.readouterr().err
    assert main(["report", "--site", "--check", str(tmp_path)]) == 2
    assert "not the record of a site" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_page_of_a_run_that_is_gone_goes_too(site):
    shutil.rmtree(site.parent / "runs" / "two")
    (site / "runs" / "notes.html").write_text("mine")
    assert main(["report", "--site", str(site.parent / "runs"), "--out", str(site)]) == 0
    assert not (site / "runs" / "two.html").exists()
    assert (site / "runs" / "notes.html").read_text() == "mine"


def test_the_values_to_sort_by_follow_the_heads(runs, tmp_path):
    """The heads follow the first run that has a value; the first run here has no loss."""
    first = generate_run(tmp_path / "first", SyntheticRun(intervals=20))
    records = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    (first / "metrics.jsonl").write_text(
        "".join(f"{json.dumps({n: v for n, v in r.items() if n != 'loss'})}\n" for r in records)
    )
    out = tmp_path / "public"
    assert main(["report", "--site", str(first), str(runs / "one"), "--out", str(out)]) == 0
    source = (out / "index.html").read_text().partition('id="runs"')[2].partition("</thead>")[0]
    heads = re.findall(r"<th [^>]*>([^<]*)<", source)
    columns = data_of(out / "index.html")["columns"]
    assert columns["loss"][0] is None
    filled = [name for name, values in columns.items() if any(v is not None for v in values)]
    assert heads == [heading(name) for name in filled]
    assert set(columns) > set(filled)


def test_remarks_name_sources_as_the_record_does_and_a_config_stays(tmp_path):
    source, out = tmp_path / "logs", tmp_path / "public"
    folder, broken = (
        generate_run(source / name, SyntheticRun(intervals=20)) for name in ("run", "broken")
    )
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace("  path: null", f"  path: {source}", 1))
    (broken / "config.yaml").write_text("[")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("no record\n")
    assert main(["report", "--site", str(source), "--out", str(out)]) == 1
    index = (out / "index.html").read_text()
    assert "../logs/broken/config.yaml" in index
    assert str(tmp_path) not in index
    page = (out / "logs" / "run.html").read_text()
    assert f">{source}</td>" in page
    assert "../logs/run/metrics.jsonl: 1 lines are no records" in page


def test_a_diverged_run_is_shown_with_its_infinite_loss(tmp_path):
    folder = generate_run(tmp_path / "logs" / "run", SyntheticRun(intervals=20))
    text = (folder / "metrics.jsonl").read_text().splitlines()
    last = next(n for n in range(len(text) - 1, 0, -1) if '"loss"' in text[n])
    text[last] = re.sub(r'"loss": [\d.]+', '"loss": Infinity', text[last])
    (folder / "metrics.jsonl").write_text("\n".join(text) + "\n")
    out = tmp_path / "public"
    assert main(["report", "--site", str(tmp_path / "logs"), "--out", str(out)]) == 0
    data = data_of(out / "index.html")["columns"]
    assert data["step"] == [200]
    assert len(data_of(out / "logs" / "run.html")["curves"][0]["curves"]["loss"]["y"]) == 19


def test_studies_of_an_archive_have_bands_and_pages(tmp_path):
    assert main(["report", "--site", str(ARCHIVE), "--out", str(tmp_path / "public")]) == 0
    page = tmp_path / "public" / "recipes-small" / "index.html"
    means = [one for one in data_of(page)["curves"] if "of" in one]
    assert len(means) == 8
    assert all(one["of"] == 3 and "low" in one["curves"]["loss"] for one in means)
    assert len(list(page.parent.glob("*.html"))) == 25
    assert "validation_loss" in data_of(page.with_name("muon_s0.html"))["curves"][0]["curves"]
    source = page.read_text()
    assert "other terms" in source
    assert "Not drawn, for a loss of other terms" in source
    assert (
        "losses of different terms or data, not compared" in source.partition("dispersive_s0 (")[0]
    )
    loss = re.search(r'<section id="loss">.*?</svg>', source, re.DOTALL)[0]
    assert "tread_s0" in loss
    assert "dispersive_s0" not in loss
    assert '<a href="muon_s0.html">muon_s0</a>' in source
    assert "other terms" not in page.with_name("muon_s0.html").read_text()


@pytest.mark.long
def test_two_hundred_runs_take_seconds_and_less_than_ten_megabytes(tmp_path):
    first = generate_run(tmp_path / "logs" / "run0", SyntheticRun(intervals=120))
    for number in range(1, 200):
        shutil.copytree(first, tmp_path / "logs" / f"run{number}")
    out = tmp_path / "public"
    command = [
        sys.executable,
        "-m",
        "analysis",
        "report",
        "--site",
        str(tmp_path / "logs"),
        "--out",
        str(out),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of one processor, and half more, since other tests slow it.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 7.5
    assert sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) < 10e6
