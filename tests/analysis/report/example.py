"""Runs with samples, evaluations and hostile names, for the tests of a site."""

import json
import re
from pathlib import Path

from PIL import Image

from tests.analysis.synthetic_runs import SyntheticRun, generate_run

HOSTILE = ("</script><img src=x onerror=alert(1)>", "\u202ertl \"quote' &amp;")


def example_runs(folder: Path) -> Path:
    """Write four runs of one folder and return it; the last two have hostile names."""
    for number, name in enumerate(["one", "two", *HOSTILE]):
        run = generate_run(
            folder / name.replace("/", "\u2215"),
            SyntheticRun(
                seed=0, intervals=120, steps_per_s=4 + number, loss_scale=1 + number / 10,
                loss_noise=0.02, ranks=1 + number, overrides=(f"data.workers={number}",),
                gpu="NVIDIA A40" if number % 2 else "NVIDIA H100",
            ),
        )  # fmt: skip
        (run / "samples").mkdir()
        for step in (400, 800, 1200):
            picture = Image.new("RGB", (32, 32), (80 * number, step // 5, 40))
            picture.save(run / "samples" / f"step-{step:09d}.png")
        entry = {"time": 1_700_000_900.0, "attempt": 1, "step": 1200, "images": 76800}
        with (run / "metrics.jsonl").open("a") as file:
            record = entry | {"validation_loss": 0.3, "validation_loss_95": 0.01}
            file.write(json.dumps(record) + "\n")
    return folder


def data_of(page: Path) -> dict:
    """Return the data that the script of a page draws."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])
