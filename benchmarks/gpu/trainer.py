"""The trainer itself, `python -m train RUN`, on dummy latents: its rate, a profile, a resume.

    python -m benchmarks.gpu.trainer rate|profile|resume key=value ...

Opens a run as a job does, trains until there are enough records, kills it, and prints one JSON
object. The rate is the median over the records after warm-up, with quartiles; power and clocks are
means over the same steps.
"""

import gzip
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

from benchmarks.gpu.pieces import TAIL
from benchmarks.gpu.power import PowerWatch
from configs.checks.batch import divide
from configs.gpus import find_gpu
from configs.load import expect
from configs.schema import Pretrain
from runs.attempt.close import close_attempt
from runs.attempt.open import open_attempt
from runs.folder import ROOT, RunFolder
from runs.state.fold import run_state
from train.cost.estimate import total_bytes
from train.cost.memory import pretrain_memory

BASE = ROOT / "configs" / "pretrain" / "dummy-latents.yaml"
# Records of a rate; the first few are a warm-up.
RECORDS, WARM_UP = 18, 4
# Events of a trace that take time of the device.
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# Columns of the budget, by the name of a kernel, or of an operator on a CPU; first match.
COLUMNS = {
    "attention": r"flash|fmha|sdpa|scaled_dot_product",
    "gemm": r"gemm|nvjet|cublas|splitk|triton_tem|xmma|mkldnn|linear|::(add|b|_scaled_)?mm$",
    "optimizer": r"multi_tensor|adam|_foreach",
    "other": r"memcpy|memset|nccl|gloo|c10d",
    "elementwise": r"",
}
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
                close_attempt(self.attempt, status=status)
                end = run_state(self.run)
                # A config that this machine refuses is no failure.
                word = "skipped" if end.reason == "config" else "failed"
                said = (self.attempt / "output.log").read_text(errors="replace")[-TAIL:]
                found = {word: f"{end.reason}: {end.message}", "tail": said}
                print(json.dumps(found), flush=True)
                sys.exit(0)
            time.sleep(0.05)
        return steps

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit status."""
        self._process.send_signal(number)
        return self._process.wait()


def train_rate(keys: list[str]) -> dict[str, Any]:
    """Return the rate, MFU, memory with its cost, shares of time, and power."""
    training = Training(BASE, keys)
    training.wait(lambda steps: len(steps) >= WARM_UP)
    with PowerWatch() as watch:
        steps = training.wait(lambda steps: len(steps) >= RECORDS)
    training.end(signal.SIGKILL)
    facts: dict[str, Any] = dict(training.run.entries()[0])
    found = steady_rate(steps[WARM_UP - 1 :], images=training.config.train.global_batch)
    known = find_gpu(facts["placement"][0].get("gpu", ""))
    peak = known.peak_tflops.bf16 if known else None
    flop = facts["training_flops_per_image"]
    found["mfu"] = found["images_per_s"] * flop / (1e12 * peak) if peak else None
    found["micro_batch"] = facts["micro_batch"]
    found["gpu_gb"] = steps[-1].get("gpu_gb")
    found["predicted_gb"] = predicted_gb(training.config, micro_batch=facts["micro_batch"])
    return found | {"setup_s": steps[-1]["setup_s"]} | watch.row


def steady_rate(steps: Records, *, images: int) -> dict[str, Any]:
    """Return the median rate between records with quartiles, and shares of their time."""
    pairs = list(itertools.pairwise(steps))
    seconds = [(b["train_s"] - a["train_s"]) / (b["step"] - a["step"]) for a, b in pairs]
    low, middle, high = statistics.quantiles(seconds, n=4)
    bound = [step["host_bound"] for step in steps if "host_bound" in step]
    first, last = steps[0], steps[-1]
    return {
        "images_per_s": images / middle,
        "images_per_s_low": images / high,
        "images_per_s_high": images / low,
        "steps_per_s": 1 / middle,
        "host_bound": statistics.mean(bound) if bound else None,
        "data_share": (last["data_s"] - first["data_s"]) / (last["train_s"] - first["train_s"]),
    }


def predicted_gb(config: Pretrain, *, micro_batch: int) -> float:
    """Return the GPU's memory in GB by its cost."""
    layout = divide(config, world=1, tuned=micro_batch)
    return total_bytes(pretrain_memory(config, layout), layout) / 1e9


def train_profile(keys: list[str]) -> dict[str, Any]:
    """Return milliseconds per image by column, and the work in each."""
    training = Training(BASE, keys)
    config, window = training.config, training.config.profile
    # The trace is written after the record of the window's last step.
    training.wait(lambda steps: steps[-1]["step"] > (window.at or 0) + window.steps)
    training.end(signal.SIGKILL)
    with gzip.open(training.run.profile / "attempt-001" / "rank-00000.json.gz") as trace:
        events = json.load(trace)["traceEvents"]
    images = window.steps * config.train.global_batch
    return {"ms": columns(events, images=images)}


def columns(events: Records, *, images: int) -> dict[str, float]:
    """Return milliseconds per image by column, on the device, and its idle time.

    Without a device operators of the host stand in, whose times include those that they call.
    """
    own = [event for event in events if event.get("cat") in DEVICE]
    own = own or [event for event in events if event.get("cat") == "cpu_op"]
    ms = dict.fromkeys(COLUMNS, 0.0)
    for event in own:
        name = event["name"]
        column = next(one for one, names in COLUMNS.items() if re.search(names, name, re.I))
        ms[column] += event["dur"] / 1e3 / images
    span = max(e["ts"] + e["dur"] for e in own) - min(e["ts"] for e in own)
    return ms | {"idle": max(0.0, span / 1e3 / images - sum(ms.values()))}


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
