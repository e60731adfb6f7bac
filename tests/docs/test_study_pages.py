"""The pages of studies say what their commands print, and nothing else."""

import re
from pathlib import Path

import pytest

from tests.docs.render import blocks, main

PAGES = [Path("docs", "studies", f"{name}.md") for name in (*"abcde", "recipes")]
_NUMBER = re.compile(r"(?<![\w.,-])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_is_what_its_commands_print(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", str(page)]) == 0, "python -m tests.docs.render docs/studies/*.md"
    left = [line for line in capsys.readouterr().err.splitlines() if "left as it is" in line]
    text = page.read_text()
    # A blank is one of what was not run, and the command that fills it stands on the page.
    for line in left:
        archive = re.search(r"(\S+\.tar\.xz) does not exist", line)
        assert archive is not None, line
        assert f"--out {archive[1]}" in text
    not_run = blocks(text.partition("\n## On GPUs: not run")[2])
    assert len(left) == len(not_run)
    assert all(block.output == "" for block in not_run)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_number_of_a_headline_is_one_of_a_table_rounded(page: Path) -> None:
    text = page.read_text()
    headline = re.search(r"^\*\*Headline\.\*\*(.*?)\n\n", text, re.M | re.S)
    printed = [
        abs(float(number.replace(",", "")))
        for block in blocks(text)
        for number in _NUMBER.findall(block.output)
    ]
    said = _NUMBER.findall(headline[1])
    assert said
    for number in said:
        decimals = len(number.partition(".")[2])
        value = abs(float(number.replace(",", "")))
        assert any(round(each, decimals) == value for each in printed), number


def test_the_guide_leads_to_every_page() -> None:
    guide = Path("docs/studies-guide.md")
    assert f"({guide})" in Path("README.md").read_text()
    assert all(f"(studies/{page.name})" in guide.read_text() for page in PAGES)
