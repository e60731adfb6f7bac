"""One attempt at measuring the gradient's noise over saved checkpoints: to its last event.

Every sample is a record once it is made, so a kill loses the one under way. From the records
comes `gns.csv`, a row per sample with its runtime.
"""

import argparse
import csv
import io
import json
from pathlib import Path
from typing import Any

from configs.attempt.close import close_attempt
from configs.attempt.open import open_attempt
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.noise_scale import noise_of
from configs.run.folder import RunFolder, is_run
from configs.run.records import valid
from configs.schema import NoiseRun
from train.engine.attempt import Attempt, finish, run_attempt
from train.engine.distributed import (
    Ranks,
    broadcast_str_before_init,
    from_rank_0,
    max_over_ranks,
    process_group,
    read_ranks,
)
from train.engine.environment import versions
from train.engine.metrics import log
from train.engine.stop import StopRequest
from train.gradient_noise.samples import Samples, Unit

_COLUMNS = (
    "checkpoint", "bin", "t_low", "t_high", "weight", "repeat", "b", "k", "share",
    "small", "big", "g2", "s", "seconds",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """`python -m train gns CHECKPOINTS [key=value ...]`."""
    parser = argparse.ArgumentParser(
        prog="python -m train gns",
        description="Measure the gradient noise scale of saved checkpoints, as jobs/gns.sbatch "
        "does; alone or under torchrun. Example: python -m train gns logs/RUN samples=50",
    )
    parser.add_argument(
        "checkpoints",
        nargs="+",
        metavar="CHECKPOINTS",
        help="a pretraining run, some of its checkpoints/step-*, a config of published weights, "
        "or the run of this kind to resume; and key=value (configs schema gns)",
    )
    words = parser.parse_args(arguments).checkpoints
    changes = [word for word in words if "=" in word and not Path(word).exists()]
    source, more = _source([Path(word) for word in words if word not in changes])
    ranks = read_ranks()
    folder = broadcast_str_before_init(
        ranks, lambda: str(open_attempt(source, [*more, *changes], kind="gns") or "")
    )
    if not folder:
        return 0
    begun = Path(folder)
    status = attempt(RunFolder(begun.parent.parent), number=int(begun.name))
    return status if ranks.rank else close_attempt(begun, status=status).exit_code


def _source(paths: list[Path]) -> tuple[Path, list[str]]:
    """The run or config that paths name, and the steps of it where they are checkpoints."""
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
    """Carry out an attempt at measuring; the exit code (0 whenever the run folder is in order)."""
    return run_attempt(run, NoiseRun, _run, number=number)


def _run(attempt: Attempt[NoiseRun]) -> None:
    run, config, ranks, watch = attempt.run, attempt.config, attempt.ranks, attempt.stop_signals
    with process_group(ranks):
        attempt.note(ranks=ranks.world, versions=versions())
        samples = Samples(config, ranks)
        units = samples.units()
        made = from_rank_0(len(_made(run)) if ranks.rank == 0 else None)
        assert isinstance(made, int)
        metrics = attempt.open_metrics()
        metrics.event("started", **_progress(made, config))
        request = StopRequest(max_over_ranks(watch.request()))
        while made < len(units) and request is StopRequest.GO_ON:
            sample = samples.make(units[made])
            made += 1
            metrics.measurement(_progress(made, config) | {"gns_sample": sample})
            if _is_last_of_group(units, made):
                _save(run, ranks)
                metrics.event("saved", **_progress(made, config))
                log.info("%d of %d samples", made, len(units))
            request = StopRequest(max_over_ranks(watch.request()))
        if request is not StopRequest.LEAVE:
            _save(run, ranks)
            request = StopRequest.GO_ON if made == len(units) else request
        finish(metrics, request, _progress(made, config))


def _is_last_of_group(units: list[Unit], made: int) -> bool:
    """Whether the sample just made is the last of its bin and checkpoint."""
    last = units[made - 1]
    return made == len(units) or (units[made].step, units[made].k) != (last.step, last.k)


def _made(run: RunFolder) -> list[dict[str, Any]]:
    """The samples recorded so far, in order, up to the first that is missing."""
    told = {r["step"]: r["gns_sample"] for r in valid(run.records()) if "gns_sample" in r}
    found: list[dict[str, Any]] = []
    while len(found) + 1 in told:
        found.append(told[len(found) + 1])
    return found


def _save(run: RunFolder, ranks: Ranks) -> None:
    """Write the csv of all samples, by rank 0."""
    if ranks.rank:
        return
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for sample in _made(run):
        noise = noise_of(sample["small"], sample["big"], count=sample["k"], batch=sample["b"])
        writer.writerow(sample | {"g2": noise.g2, "s": noise.s})
    replace_file(run.path / "gns.csv", out.getvalue())


def _progress(made: int, config: NoiseRun) -> dict[str, int]:
    return {"step": made, "images": made * config.count * config.batch}
