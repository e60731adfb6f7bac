"""The report is one inert page that shows everything and is the same for the same runs."""

import html.parser
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
from PIL import Image

from analysis.__main__ import main
from analysis.report.html import table
from runs.study_folder import StudyFolder, StudyRow
from tests.analysis import foreign_logs as write
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of ours, one with samples and one with a hostile name, and a foreign log."""
    tmp_path = tmp_path_factory.mktemp("report")
    names = ["one", "two", "<img src=x onerror=alert(1)>\x1b[31m"]
    folders = [
        generate_run(
            tmp_path / name,
            SyntheticRun(
                seed=seed, save_every=20, steps_per_s=4 + seed, intervals=80,
                overrides=(f"data.workers={seed}",),
            ),
        )
        for seed, name in enumerate(names)
    ]  # fmt: skip
    (folders[0] / "samples").mkdir()
    Image.effect_noise((500, 400), 60).save(folders[0] / "samples" / "step-000000800.png")
    (folders[1] / "samples").mkdir()
    (folders[1] / "samples" / "x.png").write_bytes(b"no image")
    (tmp_path / "theirs.txt").write_bytes(write.dit(write.synthetic_log(n=60)))
    return [*map(str, folders), str(tmp_path / "theirs.txt")]


@pytest.fixture(scope="module")
def page(runs):
    out = Path(runs[0]).parent / "out" / "report.html"
    out.parent.mkdir()
    assert main(["report", *runs, "--out", str(out)]) == 0
    return out


class Seen(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.addresses = set(), []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.addresses += [v for k, v in attributes if k in ("href", "src", "xlink:href", "action")]
        assert not any(name.startswith("on") for name, _ in attributes)


def test_the_page_fetches_nothing_and_runs_nothing(page):
    seen = Seen()
    seen.feed(page.read_text())
    assert "script" not in seen.tags
    assert all(re.match(r"#|data:|\.\./", address) for address in seen.addresses)
    assert "url(http" not in page.read_text()


def test_hostile_names_are_text(page):
    source = page.read_text()
    assert "<img src=x" not in source
    assert "\x1b" not in source
    assert "&lt;img src=x onerror=alert(1)&gt;" in source


def test_the_same_runs_give_the_same_bytes(page, runs):
    before = page.read_bytes()
    main(["report", *runs, "--out", str(page)])
    assert page.read_bytes() == before


def test_every_part_is_there(page):
    source = page.read_text()
    for part in (
        "effects",
        "verdicts",
        "runs",
        "speed",
        "loss",
        "differences",
        "findings",
        "samples",
    ):
        assert f'<section id="{part}">' in source
    assert source.count("<svg") == 4
    assert source.count("data:image/png;base64,") == 1
    assert "within-run only" in source


def test_numbers_link_to_the_line_that_they_come_from(page):
    assert 'href="../one/metrics.jsonl#line=' in page.read_text()


def test_the_tables_stand_beside_it_as_csv(page):
    assert page.with_suffix(".csv").read_text().startswith("run,state,step,")


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
    assert main(["report", str(study.path), "--out", str(tmp_path / "r.html")]) == 0
    source = (tmp_path / "r.html").read_text()
    assert "What do workers cost? 6 runs (ditbench), compared with w4_r1 (+2 alike)" in source
    assert source.count("<li>") == 1
    assert re.search(r"<b>0\.(50|499)\d*x</b>", source)
    assert "within-run only" not in source


def test_fifty_runs_are_at_most_three_megabytes(tmp_path):
    for number in range(50):
        folder = generate_run(
            tmp_path / "logs" / f"run{number}", SyntheticRun(seed=number, intervals=30)
        )
        (folder / "samples").mkdir()
        Image.effect_noise((300, 300), 60).save(folder / "samples" / "a.png")
    assert main(["report", str(tmp_path / "logs"), "--out", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").stat().st_size < 3_000_000


def test_runs_of_one_name_are_told_apart(tmp_path):
    for folder in ("x", "y"):
        generate_run(tmp_path / folder / "run", SyntheticRun(intervals=20))
    main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")])
    source = (tmp_path / "r.html").read_text()
    assert "x/run" in source
    assert "y/run" in source


def test_a_folder_that_cannot_be_written_is_misuse(runs, tmp_path, capsys):
    assert main(["report", *runs, "--out", str(tmp_path / "nowhere" / "r.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


PROBE = """<script>
const boxes = [...document.querySelectorAll("figure, section, table, svg, img")]
  .map(e => [e.tagName, e.getBoundingClientRect()])
  .filter(([, box]) => box.width < 20 || box.height < 10).map(([tag]) => tag);
document.title = "probe:" + boxes.join(",") + ":" + performance.getEntriesByType("resource").length;
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_shows_every_figure_without_an_error_or_a_request(page, tmp_path):
    source = re.sub(r"<meta http-equiv=.*?>", "", page.read_text(), flags=re.DOTALL)
    probe = tmp_path / "probe.html"
    probe.write_text(source.replace("</body>", f"{PROBE}</body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    for file in (page, probe):
        command = [CHROMIUM, *flags, profile, file.as_uri()]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert "CONSOLE" not in shown.stderr
    assert "<title>probe::0</title>" in shown.stdout


def test_columns_stand_in_the_order_of_the_rows_names_even_if_the_first_row_lacks_one():
    rows = [{"run": "a", "speedup": None, "fid_inf": 3}, {"run": "b", "speedup": 2, "fid_inf": 3}]
    heads = re.findall("<th [^>]*>(.*?)</th>", table(rows))
    assert heads == ["run", "speedup", "fid inf"]
    assert re.findall("<th [^>]*>(.*?)</th>", table([{"train.steps": 1}])) == ["train.<wbr>steps"]
