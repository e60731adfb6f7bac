"""Answer `ditbench plan`: memory, micro batch and step time of configs on GPUs, as JSON.

Reads configs from stdin, each with every key as a line of JSON, and prints a list with an answer to
each: a `CostEstimate`, or `{"error": why}`.
"""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from configs.checks.batch import BatchLayout, divide
from configs.errors import ConfigError
from configs.load import resolve
from configs.schema import Pretrain
from configs.terminal import command_parser
from train.cost.estimate import estimate
from train.cost.kept import cost_file, say
from train.cost.memory import facts, pretrain_memory, stacks_of

# Networks that are counted at once: each process takes a GB, and login nodes have limits.
_MOST_AT_ONCE = 8


def main(arguments: list[str]) -> int:
    """Answer the queries on stdin."""
    command_parser("train cost", __doc__).parse_args(arguments)
    configs = [_config(json.loads(line)) for line in sys.stdin if line.strip()]
    _count_missing([config for config in configs if isinstance(config, Pretrain)])
    answers = []
    for config in configs:
        try:
            if isinstance(config, ConfigError):
                raise config
            answers.append(asdict(estimate(config)))
        except ConfigError as error:
            answers.append({"error": str(error)})
    print(json.dumps(answers))
    return 0


def _config(tree: dict[str, Any]) -> Pretrain | ConfigError:
    config = resolve(tree, source="stdin")
    if isinstance(config, Pretrain):
        return config
    return ConfigError(f"only pretraining is forecast, not kind {config.kind}")


def _count_missing(configs: Sequence[Pretrain]) -> None:
    """Count the networks of several configs whose costs are not kept, several at once."""
    missing: dict[Path, tuple[Pretrain, BatchLayout]] = {}
    for config in configs:
        with contextlib.suppress(ConfigError):
            layout = divide(config, world=config.resources.world, tuned=1)
            file = cost_file(facts(config, layout, stacks_of(config, layout)))
            if not file.exists():
                missing[file] = config, layout
    workers = min(len(missing), len(os.sched_getaffinity(0)), _MOST_AT_ONCE)
    if len(missing) < 2:
        return
    say(f"{len(missing)} networks, {workers} at once; kept for later")
    # A fork would share the threads of torch.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        pending = [pool.submit(pretrain_memory, *one) for one in missing.values()]
        for done, one in enumerate(as_completed(pending), start=1):
            # What failed is counted again by its own query, which then has the error.
            with contextlib.suppress(ConfigError, BrokenProcessPool):
                one.result()
            say(f"{done} of {len(missing)} networks done")
