"""Measure the gradient's noise at saved checkpoints: one attempt, to its last event.

Every finished sample is a record, so a kill loses only the sample in progress. `gns.csv` is
written from the records, with one row per sample and its runtime.
"""

import argparse
import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

from configs.disk import replace_file
from configs.errors import ConfigError
from configs.noise_scale import noise_of
from configs.schema import NoiseRun
from runs.folder import RunFolder, is_run
from runs.records import valid
from train.engine.attempt import Attempt, finish, open_and_run, run_attempt
from train.engine.distributed import Ranks, from_rank_0, max_over_ranks, process_group
from train.engine.environment import versions
from train.engine.metrics import log
from train.engine.numerics import set_precision
from train.engine.stop import StopRequest
from train.gradient_noise.samples import NoiseSample, OfflineNoise

_COLUMNS = (
    "checkpoint", "bin", "t_low", "t_high", "weight", "repeat", "b", "k", "share",
    "small", "big", "g2", "s", "seconds",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Carry out `ditbench train noise CHECKPOINTS [key=value ...]`."""
    parser = argparse.ArgumentParser(
        prog="ditbench train noise",
        description="Measure the gradient noise scale at saved checkpoints, as jobs/gns.sbatch "
        "does; with or without torchrun. Example: ditbench train noise logs/RUN samples=50",
    )
    parser.add_argument(
        "checkpoints",
        nargs="+",
        metavar="CHECKPOINTS",
        help="a pretraining run, some of its checkpoints/step-*, a config of published weights, "
        "or a gns run to resume; then key=value (ditbench show gns)",
    )
    words = parser.parse_args(arguments).checkpoints
    changes = [word for word in words if "=" in word and not Path(word).exists()]
    source, steps = _source([Path(word) for word in words if word not in changes])
    return open_and_run(source, [*steps, *changes], kind="gns", attempt=attempt)


def _source(paths: list[Path]) -> tuple[Path, list[str]]:
    """Return the run or config that `paths` name; for checkpoints, also an override of `steps`."""
    if not paths:
        raise ConfigError("name a pretraining run, its checkpoints, or a config")
    runs = {path.resolve().parent.parent for path in paths}
    if all(path.name.startswith("step-") for path in paths) and len(runs) == 1:
        run = runs.pop()
        if is_run(run):
            steps = sorted(int(path.name.removeprefix("step-")) for path in paths)
            return run, [f"steps={json.dumps(steps)}"]
    if len(paths) > 1:
        raise ConfigError(f"{paths[1]}: name one run or config, or checkpoints of one run")
    return paths[0], []


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at measuring. Return 0 if it leaves the run folder in order."""
    return run_attempt(run, NoiseRun, _run, number=number)


def _run(attempt: Attempt[NoiseRun]) -> None:
    run, config, ranks, signals = attempt.run, attempt.config, attempt.ranks, attempt.stop_signals
    set_precision(config.precision, ranks.device)
    with process_group(ranks):
        attempt.note(ranks=ranks.world, versions=versions())
        noise = OfflineNoise(config, ranks)
        samples = noise.samples()
        done = from_rank_0(len(_recorded(run)) if ranks.rank == 0 else None)
        metrics = attempt.open_metrics()
        metrics.event("started", **_progress(done, config))
        request = StopRequest(max_over_ranks(signals.request()))
        while done < len(samples) and request is StopRequest.GO_ON:
            fields = noise.measure(samples[done])
            done += 1
            metrics.measurement(_progress(done, config) | {"gns_sample": fields})
            if _is_last_of_group(samples, done):
                _save(run, ranks)
                metrics.event("saved", **_progress(done, config))
                log.info("%d of %d samples", done, len(samples))
            request = StopRequest(max_over_ranks(signals.request()))
        if request is not StopRequest.LEAVE:
            _save(run, ranks)
            request = StopRequest.GO_ON if done == len(samples) else request
        finish(metrics, request, _progress(done, config))


def _is_last_of_group(samples: list[NoiseSample], done: int) -> bool:
    """Return whether the last finished sample is the last of its bin and checkpoint."""
    if done == len(samples):
        return True
    last, following = samples[done - 1], samples[done]
    return (following.step, following.k) != (last.step, last.k)


def _recorded(run: RunFolder) -> list[dict[str, Any]]:
    """Return the recorded samples in order, up to the first that is missing."""
    by_step = {r["step"]: r["gns_sample"] for r in valid(run.records()) if "gns_sample" in r}
    steps = itertools.takewhile(by_step.__contains__, itertools.count(1))
    return [by_step[step] for step in steps]


def _save(run: RunFolder, ranks: Ranks) -> None:
    """Write `gns.csv` with all samples, on rank 0."""
    if ranks.rank:
        return
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for sample in _recorded(run):
        noise = noise_of(sample["small"], sample["big"], count=sample["k"], batch=sample["b"])
        writer.writerow(sample | {"g2": noise.g2, "s": noise.s})
    replace_file(run.path / "gns.csv", out.getvalue())


def _progress(done: int, config: NoiseRun) -> dict[str, int]:
    return {"step": done, "images": done * config.count * config.batch}
