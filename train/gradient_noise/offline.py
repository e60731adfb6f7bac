"""Measure the gradient's noise at saved checkpoints: one attempt, to its last event.

Every finished sample is a record, so a kill loses only the sample in progress.
"""

import itertools

from configs.schema import NoiseRun
from runs.folder import RunFolder
from runs.records import valid
from train.engine.attempt import Attempt, finish
from train.engine.distributed import from_rank_0, max_over_ranks, process_group
from train.engine.environment import versions
from train.engine.metrics import log
from train.engine.numerics import set_precision
from train.engine.stop import StopRequest
from train.gradient_noise.samples import OfflineNoise


def carry_out(attempt: Attempt[NoiseRun]) -> None:
    """Carry out an attempt at measuring."""
    config, ranks, signals = attempt.config, attempt.ranks, attempt.stop_signals
    set_precision(config.precision, ranks.device)
    with process_group(ranks):
        attempt.note(ranks=ranks.world, versions=versions())
        noise = OfflineNoise(config, ranks)
        samples = noise.samples()
        done = from_rank_0(_recorded(attempt.run) if ranks.rank == 0 else None)
        metrics = attempt.open_metrics()
        metrics.event("started", **_progress(done, config))
        request = StopRequest(max_over_ranks(signals.request()))
        while done < len(samples) and request is StopRequest.GO_ON:
            sample = samples[done]
            fields = noise.measure(sample)
            done += 1
            metrics.evaluation(_progress(done, config) | {"gns_sample": fields})
            if sample.repeat == config.samples - 1:
                metrics.event("saved", **_progress(done, config))
                log.info("%d of %d samples", done, len(samples))
            request = StopRequest(max_over_ranks(signals.request()))
        if request is not StopRequest.LEAVE and done == len(samples):
            request = StopRequest.GO_ON
        finish(metrics, request, _progress(done, config))


def _recorded(run: RunFolder) -> int:
    """Return the number of recorded samples, up to the first that is missing."""
    known = {record["step"] for record in valid(run.records()) if "gns_sample" in record}
    return next(step for step in itertools.count(1) if step not in known) - 1


def _progress(done: int, config: NoiseRun) -> dict[str, int]:
    return {"step": done, "images": done * config.count * config.batch}
