"""Runs by ai-toolkit in this process, for tests: make, run, stop and inspect them."""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from configs.load import merge, resolve, to_tree
from configs.schema import Finetune
from configs.yaml12 import dump_yaml
from finetune.aitoolkit.run import attempt
from runs.folder import RunFolder, claim_attempt, make_run, resume_config
from runs.records import Record
from train.engine.metrics import log

FAKE_TOOLKIT = Path(__file__).with_name("fake_aitoolkit.py")


def make_toolkit(folder: Path) -> Path:
    """Make a checkout of ai-toolkit whose run.py is the fake one."""
    (folder / "toolkit").mkdir(parents=True)
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "python").symlink_to(sys.executable)
    shutil.copyfile(FAKE_TOOLKIT, folder / "run.py")
    return folder


def make_images(folder: Path, *, count: int = 2) -> Path:
    """Make captioned black images."""
    folder.mkdir()
    for number in range(count):
        Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"[trigger], the {number}.")
    return folder


def new_run(folder: Path, **changes: Any) -> RunFolder:
    """Make a run folder, inputs unchecked; `__` in the names of `changes` stands for a dot."""
    tree = {
        "kind": "finetune",
        "engine": "aitoolkit",
        "flux": {"folder": str(folder / "model")},
        "data": {"folder": str(folder / "images"), "trigger": "a thing"},
        "train": {"steps": 12},
        "checkpoint": {"every": 4},
        "log": {"every": 1, "tensorboard": False},
        "sample": {"prompts": ["[trigger] at sea", "costs $5, not ${HOME}"], "every": 4},
    }
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    config = resolve(merge(tree, dotted), source="test")
    return make_run("kit", to_tree(config))


def run_attempt(
    run: RunFolder, *overrides: str, meanwhile: Callable[[], None] | None = None
) -> int:
    """Run one more attempt to its end; `meanwhile` runs in another thread."""
    config = resume_config(run, list(overrides))
    assert isinstance(config, Finetune)
    number = claim_attempt(run, config)
    thread = threading.Thread(target=meanwhile or (lambda: None))
    signals = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
    handlers = {each: signal.getsignal(each) for each in signals}
    thread.start()
    try:
        return attempt(run, number=number)
    finally:
        thread.join()
        for log_handler in log.handlers:
            log_handler.close()
        for each, handler in handlers.items():
            signal.signal(each, handler)


def signal_at(run: RunFolder, step: int, number: int = signal.SIGUSR1) -> None:
    """Send this process a signal once the run has recorded a step."""
    wait_for(lambda: any(r.get("step", 0) >= step for r in steps(run)))
    os.kill(os.getpid(), number)


def wait_for(condition: Callable[[], object], *, timeout: float = 60) -> None:
    """Poll until `condition` is true; fail after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


def steps(run: RunFolder) -> list[Record]:
    """Return the step records in file order."""
    return [r for r in run.records() if "event" not in r and "drawn_images" not in r]


def events(run: RunFolder, name: str) -> list[Record]:
    """Return the events of a name."""
    return [r for r in run.records() if r.get("event") == name]


def write_job(file: Path, tiny: Path) -> Path:
    """Write a config that both engines accept, for the tiny Flux in a folder."""
    config: dict[str, Any] = {
        "kind": "finetune",
        "flux": {
            "folder": str(tiny / "model"),
            "assistant_lora": str(tiny / "assistant.safetensors"),
        },
        "data": {
            "folder": str(tiny / "images"),
            "trigger": "tiny subject",
            "resolutions": [64],
            "bucket": 16,
        },
        "lora": {"rank": 4},
        "optimizer": {"lr": 0.001},
        "train": {"steps": 12},
        "checkpoint": {"every": 5},
        "log": {"every": 1, "tensorboard": False},
        "sample": {
            "prompts": ["[trigger] on a beach", "it costs $5, not ${HOME}"],
            "every": 5,
            "width": 64,
            "height": 64,
            "steps": 1,
        },
        "resources": {"gpus_per_node": 0},
    }
    file.write_text(dump_yaml(config))
    return file
