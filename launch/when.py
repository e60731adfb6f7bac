"""`ditbench when`: when a run is done on each shape of the cluster, by forecast, and its cost.

The start is what `sbatch --test-only` expects; its latest is also that of 90 % of the jobs that
began in the last 14 days. The rest is the forecast of the run.
"""

import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from configs.errors import ConfigError
from configs.gpus import rate_of, read_rates
from configs.grid.study_file import is_study
from configs.run.study_folder import is_study_folder
from configs.table import Form, Row, show
from launch.slurm import client
from launch.slurm.executor import sbatch_text
from launch.slurm.flags import Flags, to_words
from launch.submit.alternatives import alternatives
from launch.submit.duration import Duration, duration, with_hours
from launch.submit.run import run_request
from launch.submit.script import RunRequest, batch_script

_MOST_NODES, _MOST_ADVISED, _FEWEST_WAITS = 4, 3, 5
_TIMES = ("start", "finish", "finish_low", "finish_high")


def when(
    source: Path, overrides: list[str], *, site_name: str | None, flags: Flags, rates: Path | None,
    form: Form,
) -> int:  # fmt: skip
    """Print a row per shape, the first to be done first, and how to queue the best; 1 if none."""
    if is_study_folder(source) or is_study(source, overrides):
        raise ConfigError(f"{source}: a study compares GPUs; name the config of one run")
    request = run_request(source, overrides, site_name=site_name, extra=flags)
    partition = str((request.site.flags | request.flags).get("partition", "")) or None
    shapes = [
        f"{gpu}:{nodes}x{count}"
        for gpu, (has, most) in client.gpus(partition).items()
        for nodes in range(1, min(has, _MOST_NODES) + 1)
        for count in sorted({most, *(2**n for n in range(most.bit_length()) if nodes == 1)})
        if gpu
    ]
    prices, waits = read_rates(rates) if rates else {}, client.waits_s(partition)
    rows = []
    for one in alternatives(request, shapes, site_name=site_name):
        found = None if one.refusal else duration(one)
        if found is None:
            print(one.refusal or f"{one.shape}: has no forecast", file=sys.stderr)
        else:
            rows.append(_row(one, found, waits.get(str(one.config.resources.gpu), []), prices))
    rows.sort(key=lambda row: row["finish"] or float("inf"))
    words = [
        {name: _clock(value) if name in _TIMES else value for name, value in row.items()}
        for row in rows
    ]
    show(rows if form == "json" else words, form)
    if not rows or rows[0]["finish"] is None:
        print("on no shape of this cluster a finish can be forecast", file=sys.stderr)
        return 1
    print(_advice(request, rows, site_name), file=sys.stderr)
    return 0


def _row(
    one: RunRequest, found: Duration, waits: Sequence[float], prices: Mapping[str, float]
) -> Row:
    """Return the row of a shape on which the run fits; times are in seconds since 1970."""
    gpu, resources, median_s, late_s = one.forecast or {}, one.config.resources, None, 0.0
    if len(waits) >= _FEWEST_WAITS:
        median_s = statistics.median(waits)
        late_s = statistics.quantiles(waits, n=10, method="inclusive")[-1]
    start = client.expected_start(sbatch_text(batch_script(with_hours(one), one.run)))
    hours = resources.nodes * resources.gpus_per_node * found.value / 3600
    rate = rate_of(gpu["type"], prices)
    return {
        "shape": one.shape,
        "step_s": gpu["step_s"]["value"],
        "run_hours": found.value / 3600,
        "start": start,
        "wait_min": "no history" if median_s is None else median_s / 60,
        "wait_90_min": None if median_s is None else late_s / 60,
        "finish": start and start + found.value,
        "finish_low": start and start + found.low,
        "finish_high": start and max(start, time.time() + late_s) + found.high,
        "gpu_hours": hours,
        "money": None if rate is None else rate * hours,
        "by": gpu["step_s"]["source"],
    }


def _clock(moment: float | None) -> str | None:
    return None if moment is None else f"{datetime.fromtimestamp(moment):%d %b %H:%M}"


def _advice(request: RunRequest, rows: list[Row], site_name: str | None) -> str:
    """Return a line with the best shape, and the command that queues it and others as good."""
    best, by_gpu = rows[0], dict[str, Row]()
    for row in rows:
        if row["finish"] is not None and row["finish_low"] <= best["finish_high"]:
            by_gpu.setdefault(row["shape"].partition(":")[0], row)
    shapes = ",".join(row["shape"] for row in [*by_gpu.values()][:_MOST_ADVISED])
    where = to_words(request.flags | ({"site": site_name} if site_name else {}))
    words = shlex.join([str(request.source), *request.overrides, *where, "--first", shapes])
    low, high = _clock(best["finish_low"]), _clock(best["finish_high"])
    return (
        f"first done: {best['shape']}, about {_clock(best['finish'])} ({low} to {high}); queue it, "
        f"and the other types that may be as early: ditbench submit {words}"
    )
