"""What `python -m train forecast` says of a config: parameters and GPU memory; asked once."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from configs.run.folder import ROOT
from configs.schema import Pretrain
from launch.preflight.check import CheckResult, failure, passed, warning
from launch.preflight.subject import Subject

_LONGEST_S = 120


@dataclass(frozen=True, kw_only=True)
class ForecastAnswer:
    """Parameters of the network and an outlook by GPU; `remark` says why there is none."""

    parameters: int | None
    gpus: dict[str, dict[str, Any]]
    remark: str = ""


def ask(subject: Subject) -> ForecastAnswer:
    """The forecast of what would be submitted."""
    if not isinstance(subject.config, Pretrain):
        return ForecastAnswer(parameters=None, gpus={}, remark=f"kind {subject.config.kind}")
    command = [sys.executable, "-m", "train", "forecast", str(subject.yaml), *subject.overrides]
    try:
        done = subprocess.run(
            [*command, "--json"],
            cwd=None,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        told = json.loads(done.stdout)
        return ForecastAnswer(parameters=int(told["parameters"]), gpus=dict(told["gpus"]))
    except (OSError, subprocess.TimeoutExpired) as error:
        return ForecastAnswer(
            parameters=None, gpus={}, remark=f"the forecast does not answer: {error}"
        )
    except (ValueError, KeyError, TypeError):
        said = (done.stderr.strip().splitlines() or ["the forecast says nothing"])[-1]
        return ForecastAnswer(parameters=None, gpus={}, remark=said)


def memory(subject: Subject, forecast: ForecastAnswer) -> Iterator[CheckResult]:
    """Whether the run fits into the memory of its GPU."""
    if subject.config.resources.gpus_per_node == 0:
        yield passed("gpu memory", "no GPU is asked for")
        return
    if not forecast.gpus:
        yield warning("gpu memory", f"unknown: {forecast.remark}")
        return
    fits = [name for name, gpu in forecast.gpus.items() if gpu["fits"]]
    tight = {name: gpu for name, gpu in forecast.gpus.items() if not gpu["fits"]}
    if not tight:
        name, gpu = next(iter(forecast.gpus.items()))
        total, capacity = gpu["gib"]["total"], gpu["capacity_gib"]
        yield passed("gpu memory", f"{total:.1f} of {capacity:.0f} GiB of {name}, by forecast")
        return
    name, gpu = next(iter(tight.items()))
    said = f"does not fit on {', '.join(tight)}: {gpu['reason']}"
    if fits:
        mend = f"set resources.gpu to one of {', '.join(fits)}, or {gpu['fix']}"
        yield warning("gpu memory", said, mend)
    else:
        yield failure("gpu memory", said, str(gpu["fix"]))
