"""The trainer itself, `python -m train RUN`, on dummy latents: its rate, a profile, a resume.

    python -m benchmarks.gpu.trainer rate|profile|resume key=value ...

Opens a run as a job does, trains until there are enough records, kills it, and prints one JSON
object. The rate is that of `python -m analysis runs`, predictions those of `train forecast`.
"""

import itertools
import json
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.measure.profile import DEVICE, HOST, Event, operations, read_trace
from analysis.measure.speed import group_arms, measure_rates
from analysis.measure.speed_table import speed_rows
from analysis.read.machine import gpu
from analysis.read.run_folder import read_ours
from analysis.read.run_log import RunLog
from configs.checks.batch import divide
from configs.gpus import find_gpu
from configs.load import expect
from configs.schema import Pretrain
from runs.attempt.close import cause
from runs.attempt.open import open_attempt
from runs.folder import ROOT, RunFolder
from train.forecast.estimate import forecast
from train.forecast.memory import dit_written
from train.forecast.query import ForecastQuery
from train.model.flops import dit_macs, training_flops

BASE = ROOT / "configs" / "pretrain" / "dummy-latents.yaml"
# For a rate: of fewer than ten after warm-up, analysis gives no interval.
RECORDS = 18
# Columns of the budget, by the name of a kernel, or of an operator on a CPU; first match.
COLUMNS = {
    "attention": r"flash|fmha|sdpa|scaled_dot_product",
    "gemm": r"gemm|nvjet|cublas|splitk|triton_tem|xmma|mkldnn|linear|::(add|b|_scaled_)?mm$",
    "optimizer": r"multi_tensor|adam|_foreach",
    "other": r"memcpy|memset|nccl|gloo|c10d",
    "elementwise": r"",
}
# As in train/forecast/roofline.py: passes over a saved byte, and bytes per parameter of an update.
PASSES, UPDATE_BYTES = 4, 52
Records = list[dict[str, Any]]


class Training:
    """One attempt at a run, in a process of its own."""

    def __init__(self, source: Path, keys: list[str]) -> None:
        attempt = open_attempt(source, keys, kind="pretrain")
        assert attempt is not None
        self.attempt, self.run, self.began = attempt, RunFolder(attempt.parents[1]), time.time()
        self.config = expect(self.run.config(), Pretrain, source=attempt)
        with (attempt / "output.log").open("w") as output:
            command = [sys.executable, "-m", "train", str(self.run.path)]
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)

    def steps(self) -> Records:
        """Return the steps recorded in this attempt."""
        number = int(self.attempt.name)
        return [r for r in self.run.records() if "loss" in r and r["attempt"] == number]

    def wait(self, enough: Callable[[Records], bool]) -> Records:
        """Return the steps once they are `enough`. If the run ends before, print why and exit."""
        while not (steps := self.steps()) or not enough(steps):
            if (status := self._process.poll()) is not None:
                why = cause(self.attempt, status=status)
                # A config that this machine refuses is no failure.
                word = "skipped" if why["reason"] == "config" else "failed"
                print(json.dumps({word: f"{why['reason']}: {why['message']}"}), flush=True)
                sys.exit(0)
            time.sleep(0.05)
        return steps

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit status."""
        self._process.send_signal(number)
        return self._process.wait()


def train_rate(keys: list[str]) -> dict[str, Any]:
    """Return the steady rate, MFU, memory and shares of time, and what was predicted of them."""
    training = Training(BASE, keys)
    training.wait(lambda steps: len(steps) >= RECORDS)
    training.end(signal.SIGKILL)
    log = read_ours(training.run)
    (row,) = speed_rows(group_arms(measure_rates([log], clock="train")))
    rates = ("steps_per_s", "steps_per_s_low", "steps_per_s_high", "images_per_s", "mfu")
    found = {"micro_batch": log.facts["micro_batch"]} | {name: row[name] for name in rates}
    found |= {"gpu_gb": log.last("gpu_gb")} | predicted(log, training.config)
    found["host_bound"] = row["host_bound"]
    found["data_share"] = (log.last("data_s") or 0.0) / (log.last("train_s") or 1.0)
    return found | {"setup_s": log.last("setup_s")}


def predicted(log: RunLog, config: Pretrain) -> dict[str, float | None]:
    """Return the forecast for the GPU and the micro batch that a run had, if the GPU is known."""
    name = gpu(log.facts) or ""
    known = find_gpu(name)
    if known is None:
        return {}
    train = config.train.model_copy(update={"micro_batch": log.facts["micro_batch"]})
    config = config.model_copy(update={"train": train})
    query = ForecastQuery(source="", config=config, gpus={name: known}, nodes=1, gpus_per_node=1)
    found = forecast(query).gpus[name]
    gb = found.gib["peak"] * 2**30 / 1e9
    return {"predicted_gb": gb, "predicted_images_per_s": found.images_per_s}


def train_profile(keys: list[str]) -> dict[str, Any]:
    """Return milliseconds per image by column, and the work in each."""
    training = Training(BASE, keys)
    config, window = training.config, training.config.profile
    # The trace is written after the record of the window's last step.
    training.wait(lambda steps: steps[-1]["step"] > (window.at or 0) + window.steps)
    training.end(signal.SIGKILL)
    events = read_trace(training.run.profile / "attempt-001" / "rank-00000.json.gz")
    images = window.steps * config.train.global_batch
    return {"ms": columns(events, images=images)} | work(read_ours(training.run), config)


def columns(events: list[Event], *, images: int) -> dict[str, float]:
    """Return milliseconds per image by column, on the device if there is one, and its idle time."""
    kinds = DEVICE if any(event.get("cat") in DEVICE for event in events) else HOST
    own = [event for event in events if event.get("cat") in kinds]
    ms = dict.fromkeys(COLUMNS, 0.0)
    for (_, name), spent in operations(own).items():
        column = next(one for one, names in COLUMNS.items() if re.search(names, name, re.I))
        ms[column] += spent.us / 1e3 / images
    span = max(e["ts"] + e["dur"] for e in own) - min(e["ts"] for e in own)
    return ms | {"idle": max(0.0, span / 1e3 / images - sum(ms.values()))}


def work(log: RunLog, config: Pretrain) -> dict[str, Any]:
    """Return the TFLOP and GB of an image by column, and the peaks of a known GPU."""
    macs, layout = dit_macs(config), divide(config, world=1, tuned=log.facts["micro_batch"])
    known = find_gpu(gpu(log.facts) or "")
    return {
        "peak_tflop_per_s": known and known.peak_tflops.bf16,
        "peak_gb_per_s": known and known.bandwidth_gb_s,
        "gemm_tflop": (training_flops(macs) - 6 * macs["attention"]) / 1e12,
        # Its backward pass has five products for two forward.
        "attention_tflop": 7 * macs["attention"] / 1e12,
        "elementwise_gb": PASSES * dit_written(config, layout) / layout.micro_batch / 1e9,
        "optimizer_gb": UPDATE_BYTES * log.facts["parameters"] / config.train.global_batch / 1e9,
    }


def train_resume(keys: list[str]) -> dict[str, Any]:
    """Save and be killed; resume, repeat the steps since the save, and be stopped."""
    killed = Training(BASE, keys)

    def is_past_save(steps: Records) -> bool:
        saved = [r["step"] for r in killed.run.records() if r.get("event") == "saved"]
        return bool(saved) and steps[-1]["step"] >= saved[-1] + 3

    killed.wait(is_past_save)
    killed.end(signal.SIGKILL)
    before = killed.steps()
    resumed = Training(killed.run.path, [])
    after = resumed.wait(lambda steps: steps[-1]["step"] >= before[-1]["step"] + 2)
    asked = time.time()
    status = resumed.end(signal.SIGTERM)
    exit_s, clock = time.time() - asked, [step.get("save_s", 0.0) for step in before]
    first, second = ({step["step"]: step["loss"] for step in each} for each in (before, after))
    repeated = first.keys() & second.keys()
    gb = sum(f.stat().st_size for f in resumed.run.checkpoints.rglob("*") if f.is_file()) / 1e9
    shutil.rmtree(resumed.run.checkpoints)
    return {
        "standstill_s": statistics.median(b - a for a, b in itertools.pairwise(clock) if b > a),
        "checkpoint_gb": gb,
        "resume_s": after[0]["time"] - resumed.began,
        "steps_repeated": len(repeated),
        "losses": "equal" if all(first[n] == second[n] for n in repeated) else "DIFFERENT",
        "exit_s": exit_s,
        "exit_status": status,
    }


MEASURES = {"rate": train_rate, "profile": train_profile, "resume": train_resume}

if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](sys.argv[2:])), flush=True)
