"""`ditbench when`: when a run is done on each shape of the cluster, by forecast, and its cost.

The start is what `sbatch --test-only` expects; its latest is also that of 90 % of the jobs that
began in the last 14 days. The rest is the forecast of the run.
"""

import shlex
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path

from configs.errors import ConfigError
from configs.gpus import rate_of, read_rates
from configs.grid.study_file import is_study
from configs.run.study_folder import is_study_folder
from configs.table import Form, Row, show
from launch.slurm import client
from launch.slurm.executor import sbatch_text
from launch.slurm.flags import Flags
from launch.submit.alternatives import alternatives
from launch.submit.duration import duration, with_hours
from launch.submit.run import run_request
from launch.submit.script import RunRequest, batch_script

_MOST_NODES, _MOST_ADVISED, _FEWEST_WAITS = 4, 3, 5


def when(
    source: Path, overrides: list[str], *, site_name: str | None, flags: Flags, rates: Path | None,
    form: Form,
) -> int:  # fmt: skip
    """Print a row per shape, the first to be done first, and how to queue the best; 1 if none."""
    if is_study_folder(source) or is_study(source, overrides):
        raise ConfigError(f"{source}: a study compares GPUs; name the config of one run")
    request = run_request(source, overrides, site_name=site_name, extra=flags)
    shapes = [
        f"{gpu}:{nodes}x{count}"
        for gpu, (has, most) in client.gpus(str(flags.get("partition", "")) or None).items()
        for nodes in range(1, min(has, _MOST_NODES) + 1)
        for count in ([2**n for n in range(most.bit_length())] if nodes == 1 else [most])
        if gpu
    ]
    found = alternatives(request, shapes, site_name=site_name) if shapes else []
    prices = read_rates(rates) if rates else {}
    rows = [row for one in found if (row := _row(one, prices))]
    rows.sort(key=lambda row: row["finish"] or float("inf"))
    times = ("start", "finish", "finish_low", "finish_high")
    words = [{**row, **{name: _clock(row[name]) for name in times}} for row in rows]
    show(rows if form == "json" else words, form)
    for one in found:
        if one.refusal or not duration(one):
            print(one.refusal or f"{one.shape}: has no forecast", file=sys.stderr)
    if not rows or rows[0]["finish"] is None:
        print("on no shape of this cluster a finish can be forecast", file=sys.stderr)
        return 1
    print(_advice(request, rows), file=sys.stderr)
    return 0


def _row(one: RunRequest, prices: dict[str, float]) -> Row | None:
    """Return the row of a shape on which the run fits; times are in seconds since 1970."""
    found, gpu = duration(one), one.forecast
    if one.refusal or found is None or gpu is None:
        return None
    script, resources = batch_script(with_hours(one), one.run), one.config.resources
    start = client.expected_start(sbatch_text(script))
    waits = client.waits_s(str(resources.gpu), str(script.flags.get("partition", "")) or None)
    late = (
        statistics.quantiles(waits, n=10, method="inclusive")[-1]
        if len(waits) >= _FEWEST_WAITS
        else None
    )
    latest = max(start, time.time() + late) if start and late else start
    hours = resources.nodes * resources.gpus_per_node * found.value / 3600
    rate = rate_of(gpu["type"], prices)
    return {
        "shape": one.shape,
        "step_s": gpu["step_s"]["value"],
        "run_hours": found.value / 3600,
        "start": start,
        "waits": f"{statistics.median(waits) / 60:.0f}, 90 % {late / 60:.0f} min"
        if late is not None else "no history",
        "finish": start and start + found.value,
        "finish_low": start and start + found.low,
        "finish_high": latest and latest + found.high,
        "gpu_hours": hours,
        "money": None if rate is None else rate * hours,
        "by": gpu["step_s"]["source"],
    }  # fmt: skip


def _clock(moment: float | None) -> str | None:
    return None if moment is None else f"{datetime.fromtimestamp(moment):%a %H:%M}"


def _advice(request: RunRequest, rows: list[Row]) -> str:
    """Return a line with the best shape, and the command that queues it and others as good."""
    best, by_gpu = rows[0], dict[str, Row]()
    for row in rows:
        if row["finish"] is not None and row["finish_low"] <= best["finish_high"]:
            by_gpu.setdefault(row["shape"].partition(":")[0], row)
    shapes = ",".join(row["shape"] for row in [*by_gpu.values()][:_MOST_ADVISED])
    words = shlex.join([str(request.source), *request.overrides, "--first", shapes])
    low, high = _clock(best["finish_low"]), _clock(best["finish_high"])
    return (
        f"first done: {best['shape']}, about {_clock(best['finish'])} ({low} to {high}); queue it, "
        f"and the other types that may be as early: ditbench submit {words}"
    )
