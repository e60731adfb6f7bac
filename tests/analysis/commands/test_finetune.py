"""Fine-tuning runs by device and steps, with nothing mixed."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from analysis.__main__ import main
from analysis.measure.detectors import detect
from analysis.read.find import read_logs
from analysis.study.cells import seconds_per_image
from configs.load import resolve, to_tree
from configs.yaml12 import dump_yaml
from runs.folder import RunFolder
from tests.analysis.synthetic_runs import SyntheticRun, append, generate_run, rewrite, write_lines

FLUX = ("kind=finetune", "flux.folder=/m", "data.folder=/d", 'sample.prompts=["a thing at sea"]')
A40, A100 = "NVIDIA A40", "NVIDIA A100-SXM4-80GB"


def tuned(folder: Path, *, gpu: str, steps: int, steps_per_s: float, **facts: Any) -> Path:
    """A run of `steps` steps with samples before the first and after the last."""
    truth = SyntheticRun(
        steps_per_s=steps_per_s,
        intervals=steps // 10,
        global_batch=1,
        gpu=gpu,
        overrides=FLUX,
        facts={"engine": "aitoolkit"} | facts,
    )
    generate_run(folder, truth)
    for step in (0, steps):
        save_sample(folder, step)
    return folder


def save_sample(folder: Path, step: int) -> None:
    file = RunFolder(folder).prompt_sample(0, step)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((32, 32, 3), step % 256, np.uint8)).save(file)


@pytest.fixture
def grid_of_runs(tmp_path: Path) -> list[str]:
    """Study B in small: two GPUs, two numbers of steps."""
    rates = {A100: 0.5, A40: 0.28}
    return [
        str(tuned(tmp_path / f"{gpu[7:11]}-{steps}", gpu=gpu, steps=steps, steps_per_s=rate))
        for gpu, rate in rates.items()
        for steps in (500, 2000)
    ]


def evaluated(folder: Path, gain: float) -> None:
    found = {"loss": 2 - gain, "gain": gain, "gain_95": 0.05}
    append(folder, {"step": 500} | {f"validation_{name}": value for name, value in found.items()})


def test_loss_leaves_out_a_run_that_only_drew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        folder = tuned(tmp_path / "runs" / name, gpu=A40, steps=500, steps_per_s=1)
        evaluated(folder, 0.5)
    drawn(tmp_path / "runs" / "infer")
    assert main(["loss", str(tmp_path / "runs"), "--of", "validation_loss"]) == 0
    assert "infer: left out, it trains nothing" in capsys.readouterr().err


def drawn(folder: Path) -> Path:
    """A run that drew 20 images at 34.0 to 34.4 s each, and waited 40 s for the first."""
    (folder / "attempts" / "001").mkdir(parents=True)
    config = {"kind": "infer", "run": "/r", "prompts": ["a"]}
    (folder / "config.yaml").write_text(dump_yaml(to_tree(resolve(config, source="test"))))
    entry = {"attempt": 1, "ranks": 1, "placement": [{"rank": 0, "gpu": A40}]}
    (folder / "manifest.json").write_text(json.dumps({"attempts": [entry]}))
    records = [{"event": "started", "step": 0}, {"step": 0, "first_image_s": 40.0, "load_s": 60.0}]
    records += [{"step": n, "image_s": 34 + 0.1 * (n % 5)} for n in range(1, 21)]
    records += [{"event": "done", "step": 20}]
    lines = [{"time": 1e9 + n, "attempt": 1} | one for n, one in enumerate(records)]
    write_lines(folder / "metrics.jsonl", lines)
    return folder


def test_what_only_drew_is_no_side_of_a_comparison(grid_of_runs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    images = str(drawn(tmp_path / "infer"))
    assert main(["report", images, *grid_of_runs, "--out", str(out)]) == 0
    page = out.read_text()
    assert "compared with A100" in page
    verdicts = re.search(r'<section id="verdicts">.*?</section>', page, re.S)
    assert verdicts is not None
    assert "infer" not in verdicts[0]
    assert "34.2" in page


def test_seconds_per_image_leave_out_the_first_of_each_start(tmp_path: Path) -> None:
    (log,) = read_logs([str(drawn(tmp_path / "infer"))])
    found = seconds_per_image(log)
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx(34.2)


def test_samples_on_the_way_tell_seconds_per_image_too(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "run", gpu=A40, steps=200, steps_per_s=1)
    drawn = {"drawn_images": 5, "drawn_s": 90.0, "first_image_s": 22.0}
    append(folder, {"step": 0} | drawn, {"step": 100} | drawn)
    (log,) = read_logs([str(folder)])
    found = seconds_per_image(log)
    assert found.value == 17


def test_skipped_images_are_told(tmp_path: Path) -> None:
    folder = generate_run(tmp_path / "run", SyntheticRun(intervals=60, overrides=FLUX))
    rewrite(folder, lambda one: one | ({"skipped_images": 2} if one.get("step") == 100 else {}))
    (found,) = detect(read_logs([str(folder)])[0])
    assert (found["finding"], found["step"]) == ("skipped", 100)
    assert found["detail"].startswith("2 images")
