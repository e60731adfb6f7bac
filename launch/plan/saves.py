"""How large checkpoints are, how long a save takes, and whether --signal leaves time for one.

A save is measured in the newest earlier runs of the model in LOGS, else estimated.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from configs.errors import ConfigError
from configs.schema import Pretrain
from launch.plan.forecast import ForecastAnswer
from launch.plan.result import CheckResult, failure, passed, warning
from launch.submit.script import RunRequest, batch_script
from runs.folder import RunFolder, find_runs
from runs.records import saves

# Slurm checks limits every 30 s; the rest is for ranks to agree and exit.
_SLACK_S = 60.0
# Of a shared file system under load: how long a save takes before its bytes, and their rate.
_SAVE_S, _BYTES_PER_S = 5.0, 0.3e9
_BYTES_FP32 = 4
_MAX_RUNS = 50


@dataclass(frozen=True, kw_only=True)
class Saves:
    """The number of earlier runs of a model and their longest mean save and step, in seconds."""

    runs: int
    save_s: float
    step_s: float


def checkpoint_bytes(config: Pretrain, parameters: int) -> int:
    """Return the size of fp32 weights, their average if it is kept, and two moments."""
    copies = 3 + (config.train.ema_decay is not None)
    return copies * _BYTES_FP32 * parameters


def expected_saves(request: RunRequest, parameters: int | None) -> Saves | None:
    """Return the saves of earlier runs of the model, else an estimate of no runs; None without."""
    config = request.config
    if isinstance(config, Pretrain) and (found := _measured(request.site.logs, _model_of(config))):
        return found
    if parameters is None:
        return None
    size = checkpoint_bytes(config, parameters) if isinstance(config, Pretrain) else 0
    return Saves(runs=0, save_s=_SAVE_S + size / _BYTES_PER_S, step_s=0.0)


def lead(request: RunRequest, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Check that the lead of --signal covers a minute, the slowest step and a save."""
    if not isinstance(request.config, Pretrain):
        return
    flags = batch_script(request, request.run).flags
    found = re.fullmatch(r"(?:\w+:)?\w+(?:@(\d+))?", str(flags.get("signal", "")))
    if found is None:
        fix = "keep the template's --signal=B:USR1@180"
        yield failure("lead time", "no signal is requested: nothing is saved at the limit", fix)
        return
    seconds = float(found[1] or 60)
    saves = expected_saves(request, forecast.parameters)
    if saves is None:
        yield warning("lead time", f"{seconds:.0f} s; the duration of a save is unknown")
        return
    need = _SLACK_S + saves.step_s + saves.save_s
    source = f"estimated at {_BYTES_PER_S / 1e9:g} GB/s: no run of this model is in LOGS"
    if saves.runs:
        source = f"measured in {saves.runs} earlier runs of this model"
    message = f"{seconds:.0f} s before the limit, {need:.0f} s needed ({source})"
    if seconds >= need:
        yield passed("lead time", message)
    else:
        fix = f"ditbench submit ... -- --signal=B:USR1@{int(need) + 30}"
        yield (failure if saves.runs else warning)("lead time", message, fix)


@cache
def _measured(logs: Path, model: str) -> Saves | None:
    runs = find_runs(logs) if logs.is_dir() else []
    newest = sorted(runs, key=lambda run: run.config_file.stat().st_mtime_ns)[-_MAX_RUNS:]
    times = []
    for run in newest:
        with suppress(ConfigError):
            other = run.config()
            if isinstance(other, Pretrain) and _model_of(other) == model and (one := _times(run)):
                times.append(one)
    if not times:
        return None
    save_s, step_s = (max(column) for column in zip(*times, strict=True))
    return Saves(runs=len(times), save_s=save_s, step_s=step_s)


def _model_of(config: Pretrain) -> str:
    has_ema = config.train.ema_decay is not None
    return repr((config.model, config.data.size, config.data.channels, has_ema))


def _times(run: RunFolder) -> tuple[float, float] | None:
    """Return the mean seconds of a save and of a step; clocks are cumulative over attempts."""
    records = list(run.records())
    timed = [one for one in records if "save_s" in one and "train_s" in one]
    count = len(saves(records))
    if not count or not timed or not timed[-1].get("step"):
        return None
    last = timed[-1]
    return last["save_s"] / count, last["train_s"] / last["step"]
