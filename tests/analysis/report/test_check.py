"""`site --check` finds every number, script and source of a site that is not as it was made."""

import json
import re
import shutil

import pytest

from analysis.__main__ import main
from analysis.site import check
from analysis.site.build import BuiltSite, SiteRecord
from tests.analysis.report.example import data_of


def test_the_check_agrees_until_a_number_or_a_source_changes(site, capsys):
    assert main(["report", "--site", "--check", str(site)]) == 0
    assert "numbers agree with their sources" in capsys.readouterr().out
    page = site / "runs" / "one.html"
    before = page.read_text()
    loss = re.search(r'id="figures".*?<td class="n">1200</td>.*?>(0\.\d+)<', before, re.DOTALL)[1]
    page.write_text(before.replace(f">{loss}<", ">0.1234<", 1))
    assert main(["report", "--site", "--check", str(site), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["of"].startswith("done 1200")
    assert (row["page"], row["here"], row["recomputed"]) == ("runs/one.html", "0.1234", loss)
    point = data_of(page)["curves"][0]["curves"]["loss"]["y"][5]
    page.write_text(before.replace(f",{point},", ",0.5,", 1))
    assert main(["report", "--site", "--check", str(site), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["here"], row["recomputed"]) == ("0.5", str(point))
    page.unlink()
    assert main(["report", "--site", "--check", str(site), "--json"]) == 1
    assert {row["page"] for row in json.loads(capsys.readouterr().out)} == {"runs/one.html"}


def test_the_check_compares_scripts_and_images_and_names_foreign_pages(site, capsys):
    changed = ["site.js", next((site / "images").iterdir()).relative_to(site).as_posix()]
    for name in changed:
        (site / name).write_bytes((site / name).read_bytes() + b" ")
    (site / "runs" / "notes.html").write_text("0.5")
    assert main(["report", "--site", "--check", str(site), "--json"]) == 1
    captured = capsys.readouterr()
    assert sorted(row["page"] for row in json.loads(captured.out)) == sorted(changed)
    assert captured.err.count("not a page of this site") == 1
    assert "runs/notes.html: not a page" in captured.err


def test_the_check_counts_numbers_and_no_tags(site, capsys, monkeypatch):
    record, made = SiteRecord(title="", margin=0.01, paths=[]), {"a.html": b"<h2>2 of x</h2> 0.5"}
    built = BuiltSite(files=made, record=record, unread=())
    monkeypatch.setattr(check, "build", lambda *_: built)
    for page in site.rglob("*.html"):
        page.unlink()
    (site / "a.html").write_bytes(made["a.html"])
    assert check.check(site)[0::2] == ([], 2)


def test_the_check_names_a_source_that_changed_and_what_that_changes(site, capsys):
    metrics = site.parent / "runs" / "two" / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    last = next(n for n in range(len(lines) - 1, 0, -1) if '"loss"' in lines[n])
    record = json.loads(lines[last])
    lines[last] = json.dumps(record | {"loss": 2 * record["loss"]}) + "\n"
    metrics.write_text("".join(lines))
    assert main(["report", "--site", "--check", str(site), "--csv"]) == 1
    captured = capsys.readouterr()
    assert "../runs/two/metrics.jsonl: not the file that the site was made from" in captured.err
    assert re.search(r"runs/two.html,\d+,done 1200", captured.out)
    shutil.rmtree(site.parent / "runs")
    assert main(["report", "--site", "--check", str(site)]) == 2
    assert "no such file or folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [{"margin": -1}, {"margin": 1}, {"margin": float("inf")}, {"paths": ["a\0b"]},
     {"claims": ["\0"]}, {"rates": "a\0"}],
)  # fmt: skip
def test_a_record_that_no_site_has_is_named(tmp_path, change, capsys):
    record = {"title": "x", "margin": 0.01, "paths": ["."]} | change
    (tmp_path / "site.json").write_text(json.dumps(record))
    assert main(["report", "--site", "--check", str(tmp_path)]) == 2
    assert f"{tmp_path}/site.json: not the record of a site" in capsys.readouterr().err
