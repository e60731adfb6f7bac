"""Generate run folders of known rate, warm-up, outliers, pauses, resumes and loss."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import lfilter

from analysis.stats.intervals import Floats
from configs.load import merge, parse_overrides, resolve, to_tree
from configs.yaml12 import dump_yaml

START = 1_700_000_000.0


@dataclass(frozen=True, kw_only=True)
class SyntheticRun:
    """The true properties of a generated run.

    Times are in seconds. `warmup` and `outliers` are shares of the intervals, `data` is the share
    of training time spent waiting for data, `cv` and `rho` are the coefficient of variation and the
    autocorrelation of intervals. With `gpu_facts` each rank has a GPU, and rows of ten seconds with
    `gpu_readings`, scattered by 1 % if they are no shares; `power_w` is counted as energy.
    """

    steps_per_s: float = 4.0
    intervals: int = 200
    every: int = 10
    global_batch: int = 64
    cv: float = 0.02
    rho: float = 0.0
    warmup: float = 0.0
    warmup_slower: float = 0.5
    outliers: float = 0.0
    outliers_slower: tuple[float, float] = (1.3, 4.0)
    data: float = 0.1
    save_every: int = 0
    save_s: float = 3.0
    setup_s: float = 20.0
    queue_s: float = 60.0
    resume_at: int | None = None
    lost_intervals: int = 5
    loss: Callable[[Floats], Floats] = lambda step: 0.2 + 0.8 / np.sqrt(1 + step / 20)
    loss_noise: float = 0.01
    loss_scale: float = 1.0
    ranks: int = 1
    gpu: str = "NVIDIA A40"
    facts: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    seed: int = 0
    gpu_facts: dict[str, float] | None = None
    gpu_readings: dict[str, float] = field(default_factory=dict)
    host_bound: float | None = None


def ar1_noise(rng: np.random.Generator, n: int, *, rho: float) -> Floats:
    """Return stationary AR(1) noise [n] of variance 1."""
    innovations = rng.standard_normal(n + 100) * np.sqrt(1 - rho * rho)
    return np.asarray(lfilter([1.0], [1.0, -rho], innovations)[100:])


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write JSON lines, and return their file."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def append(run: Path, *records: Mapping[str, Any]) -> None:
    """Add records to a run, of its first attempt and after its end unless they say otherwise."""
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(f"{json.dumps({'time': 2e9, 'attempt': 1} | one)}\n" for one in records)


def rewrite(run: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Replace each record of a run."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    write_lines(run / "metrics.jsonl", (change(json.loads(line)) for line in lines))


def rewrite_manifest(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the first attempt in the manifest of a run."""
    manifest = json.loads((run / "manifest.json").read_text())
    change(manifest["attempts"][0])
    (run / "manifest.json").write_text(json.dumps(manifest))


def durations(truth: SyntheticRun, rng: np.random.Generator) -> Floats:
    """Return the seconds of each interval [n]: the true rate with log-normal noise."""
    n = truth.intervals
    factor = np.exp(truth.cv * ar1_noise(rng, n, rho=truth.rho))
    slow = rng.random(n) < truth.outliers
    factor[slow] *= rng.uniform(*truth.outliers_slower, int(slow.sum()))
    factor[: int(truth.warmup * n)] *= 1 + truth.warmup_slower
    return factor * truth.every / truth.steps_per_s


def generate_run(folder: Path, truth: SyntheticRun) -> Path:
    """Write the folder of a generated run and return it."""
    (folder / "attempts" / "001").mkdir(parents=True)
    steps = truth.intervals * truth.every
    overrides = [f"train.steps={steps}", f"log.every={truth.every}", f"seed={truth.seed}"]
    if "kind=finetune" not in truth.overrides:
        overrides += ["train.compile=false"]
    overrides += [f"train.global_batch={truth.global_batch}", *truth.overrides]
    config = resolve(merge({}, parse_overrides(overrides)), source="generated")
    (folder / "config.yaml").write_text(dump_yaml(to_tree(config)))
    attempts = [1] if truth.resume_at is None else [1, 2]
    rank_place = {
        "node": "n1",
        "host": "n1",
        "threads": 8 // truth.ranks,
        "gpu": truth.gpu,
        "gpu_memory_gb": 48.0,
    }
    placement = [{"rank": rank, **rank_place} for rank in range(truth.ranks)]
    facts = {"placement": placement, "ranks": truth.ranks, "commit": "0" * 40, "host": folder.name}
    facts |= truth.facts
    manifest = {"run": folder.name, "attempts": [{"attempt": a, **facts} for a in attempts]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    records = _records(truth)
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    if truth.gpu_facts is not None:
        for attempt in attempts:
            own = [record["time"] for record in records if record["attempt"] == attempt]
            write_gpu_log(folder, truth, attempt=attempt, begin=own[0], end=own[-1])
    return folder


def write_gpu_log(
    folder: Path, truth: SyntheticRun, *, attempt: int, begin: float, end: float
) -> None:
    """Write the readings of a GPU per rank; the counter begins at 5 kJ."""
    rng = np.random.default_rng([truth.seed, attempt])
    facts = {"energy_j": 5000.0, **(truth.gpu_facts or {})}
    lines: list[dict[str, Any]] = [{"time": begin, "gpus": [facts] * truth.ranks}]
    counters = [5000.0] * truth.ranks
    for start in np.arange(begin, end, 10.0):
        span = min(10.0, end - start)
        for gpu in range(truth.ranks):
            row = {
                name: value * (1 + 0.01 * rng.standard_normal() * (value > 1))
                for name, value in truth.gpu_readings.items()
            }
            counters[gpu] += row.get("power_w", 0.0) * span
            at = {"time": float(start + span), "span_s": float(span), "gpu": gpu}
            lines.append(at | row | {"energy_j": counters[gpu]})
    path = folder / "attempts" / f"{attempt:03d}" / "gpu" / "n1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def losses(truth: SyntheticRun) -> Floats:
    """Return the losses [n]; runs with the same seed have the same noise, as real runs do."""
    rng = np.random.default_rng([truth.seed, 1])
    step = np.arange(1, truth.intervals + 1) * float(truth.every)
    scatter = 1 + truth.loss_noise * ar1_noise(rng, truth.intervals, rho=truth.rho)
    return truth.loss_scale * truth.loss(step) * scatter


def _records(truth: SyntheticRun) -> list[dict[str, Any]]:
    """Return the records; a resume loses `lost_intervals` and repeats them."""
    spent = durations(truth, np.random.default_rng([truth.seed, 0]))
    recorder = _Recorder(truth=truth, now=START, losses=losses(truth))
    recorder.write(event="queued")
    recorder.start(step=0, after=truth.queue_s)
    crash = truth.intervals if truth.resume_at is None else truth.resume_at + truth.lost_intervals
    clocks = dict(recorder.spent)
    for index in range(min(crash, truth.intervals)):
        if index == truth.resume_at:
            clocks = dict(recorder.spent)
        recorder.train(index, spent[index])
    if truth.resume_at is not None:
        recorder.spent |= clocks
        recorder.start(step=truth.resume_at * truth.every, after=30.0)
        for index in range(truth.resume_at, truth.intervals):
            recorder.train(index, spent[index])
    recorder.write(event="done", step=truth.intervals * truth.every)
    return recorder.records


@dataclass(kw_only=True)
class _Recorder:
    """Writes records while its clocks advance."""

    truth: SyntheticRun
    now: float
    losses: Floats
    attempt: int = 0
    spent: dict[str, float] = field(
        default_factory=lambda: {"train_s": 0.0, "data_s": 0.0, "save_s": 0.0, "setup_s": 0.0}
    )
    records: list[dict[str, Any]] = field(default_factory=list)

    def write(self, **fields: Any) -> None:
        self.records.append({"time": round(self.now, 6), "attempt": self.attempt} | fields)

    def start(self, *, step: int, after: float) -> None:
        self.now += after
        self.attempt += 1
        self.write(event="started", step=step)
        self.now += self.truth.setup_s
        self.spent["setup_s"] += self.truth.setup_s

    def train(self, index: int, seconds: float) -> None:
        truth, step = self.truth, (index + 1) * self.truth.every
        self.now += seconds
        self.spent["train_s"] += seconds
        self.spent["data_s"] += seconds * truth.data
        clocks = {name: round(value, 6) for name, value in self.spent.items()}
        loss = float(self.losses[index])
        bound = {} if truth.host_bound is None else {"host_bound": truth.host_bound}
        self.write(step=step, images=step * truth.global_batch, loss=loss, **clocks, **bound)
        if truth.save_every and (index + 1) % truth.save_every == 0:
            self.now += truth.save_s
            self.spent["save_s"] += truth.save_s
            self.write(event="saved", step=step)
