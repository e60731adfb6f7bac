"""A new part of a training is one file, as CONTRIBUTING.md shows it."""

import re
from pathlib import Path

import pytest

import train.parts
from tests.real_runs import DIGITS, TINY, losses
from tests.train.engine.test_loop import train as trained


def test_the_metric_of_contributing_is_recorded_every_hundred_steps_by_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path("CONTRIBUTING.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "weight_norm_of_contributing.py").write_text(source, encoding="utf-8")
    keys = (*TINY, "train.steps=5", "log.every=1", "optimizer.warmup_steps=0", "optimizer.lr=1e-2")
    plain = trained(DIGITS, *keys)
    folders = [*train.parts.__path__, str(tmp_path / "parts")]
    monkeypatch.setattr(train.parts, "__path__", folders)
    (tmp_path / "parts" / "weight_norm_of_contributing.py").write_text(
        source.replace("every = 100", "every = 2"), encoding="utf-8"
    )
    run = trained(DIGITS, *keys)
    found = {r["step"]: r["weight_norm"] for r in run.records() if "weight_norm" in r}
    assert list(found) == [2, 4, 5]
    assert all(norm > 1 for norm in found.values())
    assert len(set(found.values())) == 3
    assert losses(run) == losses(plain)
