"""`report --check` finds every number, script and source of a report that is not as it was made."""

import json
import re
import shutil

import pytest

from analysis.__main__ import main
from tests.analysis.report.example import data_of


def test_the_check_agrees_until_a_number_changes(copied, capsys):
    page = copied / "page" / "report.html"
    assert main(["report", "--check", str(page)]) == 0
    assert "numbers agree with their sources" in capsys.readouterr().out
    before = page.read_text()
    loss = re.search(r'id="runs".*?<td class="n">(0\.\d+)<', before, re.DOTALL)[1]
    page.write_text(before.replace(f">{loss}<", ">0.1234<", 1))
    assert main(["report", "--check", str(page), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["page"], row["here"], row["recomputed"]) == (page.name, "0.1234", loss)
    point = data_of(page)["curves"][0]["curves"]["loss"]["y"][5]
    page.write_text(before.replace(f",{point},", ",0.5,", 1))
    assert main(["report", "--check", str(page), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["here"], row["recomputed"]) == ("0.5", str(point))


def test_the_check_compares_scripts_and_a_page_may_be_renamed(copied, capsys):
    page = copied / "page" / "report.html"
    page = page.rename(page.with_name("mine.html"))
    assert main(["report", "--check", str(page)]) == 0
    page.write_text(page.read_text().replace('"use strict";', '"use strict"; 1;'))
    capsys.readouterr()
    assert main(["report", "--check", str(page), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["page"], row["of"]) == ("mine.html", "the scripts or the style")


def test_the_check_names_a_source_that_changed_and_what_that_changes(copied, capsys):
    metrics = copied / "runs" / "two" / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    last = next(n for n in range(len(lines) - 1, 0, -1) if '"loss"' in lines[n])
    record = json.loads(lines[last])
    lines[last] = json.dumps(record | {"loss": 2 * record["loss"]}) + "\n"
    metrics.write_text("".join(lines))
    page = copied / "page" / "report.html"
    assert main(["report", "--check", str(page), "--csv"]) == 1
    captured = capsys.readouterr()
    assert "../runs/two/metrics.jsonl: not the file that the report was made from" in captured.err
    assert re.search(r"report.html,\d+,two", captured.out)
    shutil.rmtree(copied / "runs")
    assert main(["report", "--check", str(page)]) == 2
    assert "no such file or folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [{"margin": -1}, {"margin": 1}, {"margin": "inf"}, {"paths": ["a\0b"]},
     {"pages": ["../a.html"]}],
)  # fmt: skip
def test_a_record_that_no_report_has_is_named(tmp_path, change, capsys):
    record = json.dumps({"title": "x", "margin": 0.01, "paths": ["."]} | change)
    page = tmp_path / "a.html"
    page.write_text(f'<script type="application/json" id="record">{record}</script>')
    assert main(["report", "--check", str(page)]) == 2
    err = capsys.readouterr().err
    assert f"{page}: no record of a report" in err
