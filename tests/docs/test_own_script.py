"""The examples of docs/own-script.md are without warnings, and valid."""

import re
from pathlib import Path

from configs.load import resolve
from configs.schema import Command
from configs.yaml12 import parse_yaml
from launch.lint.lint import lint
from launch.lint.script import parse_script

PAGE = Path("docs/own-script.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_batch_script_has_no_findings() -> None:
    (script,) = blocks("bash")
    assert lint(parse_script(script, path=Path("my.sbatch"))) == []


def test_the_configs_are_valid() -> None:
    example, logs = blocks("yaml")
    tree = parse_yaml(example, source="page")
    assert isinstance(resolve(tree, source="page"), Command)
    for line in logs.splitlines():
        resolve(tree | parse_yaml(line, source="page"), source="page")
