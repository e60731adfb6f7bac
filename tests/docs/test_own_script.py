"""The example of docs/own-script.md is without warnings."""

import re
from pathlib import Path

from launch.lint.lint import lint
from launch.lint.script import parse_script

PAGE = Path("docs/own-script.md").read_text(encoding="utf-8")


def test_the_batch_script_has_no_findings() -> None:
    (script,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    assert lint(parse_script(script, path=Path("my.sbatch"))) == []
