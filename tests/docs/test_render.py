"""`render` carries out the commands of a Markdown page, and changes what they print alone."""

from pathlib import Path

import pytest

from tests.analysis.synthetic_runs import SyntheticRun, generate_run
from tests.docs.render import main

PAGE = """# Title

    $ python -m analysis runs nowhere

```console
$ python -m analysis cells {logs}
of long ago
```

```console
$ python -m analysis loss {logs} \\
  --plot {plot}
```

Prose.

```console
$ python -m analysis cells logs/of-a-cluster
to be filled in
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    for number in (0, 1):
        truth = SyntheticRun(seed=number, intervals=30, overrides=(f"data.workers={number}",))
        generate_run(tmp_path / "runs" / f"run{number}", truth)
    file = tmp_path / "page.md"
    file.write_text(PAGE.format(logs=tmp_path / "runs", plot=tmp_path / "loss.png"))
    return file


def test_outputs_are_renewed_and_nothing_else(page, tmp_path, capsys):
    before = page.read_text()
    assert main(["--check", str(page)]) == 1
    assert page.read_text() == before
    assert not (tmp_path / "loss.png").exists()
    assert main([str(page)]) == 0
    after = page.read_text()
    assert "of long ago" not in after
    assert "steps/s" in after
    assert "to be filled in" in after
    assert "left as it is" in capsys.readouterr().err
    assert (tmp_path / "loss.png").stat().st_size > 0
    assert main(["--check", str(page)]) == 0
    outputs = after.split("```console")
    kept = [part.split("```")[-1] for part in outputs]
    assert kept == [part.split("```")[-1] for part in before.split("```console")]


@pytest.mark.parametrize("command", ["cells --nonsense", "nonsense"])
def test_a_command_that_is_none_is_told_with_its_page(command, page, capsys):
    text = page.read_text()
    page.write_text(text.replace("analysis cells", f"analysis {command}", 1))
    assert main([str(page)]) == 2
    assert f"{page}: python -m analysis {command}" in capsys.readouterr().err
    assert page.read_text().count("of long ago") == 1
