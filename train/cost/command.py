"""Say how much memory a run takes on each GPU, and how long its steps take, before it is queued.

Prints the memory of one rank by kind, the largest micro batch that fits, and the seconds per step:
a guess from the FLOPs unless `ditbench plan --measure` has measured them.
If a config does not fit, it prints the keys that would make it fit.

`ditbench plan` asks it. Example: python -m train cost configs/pretrain/cifar10.yaml --gpu a40
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from configs.checks.batch import BatchLayout, divide
from configs.errors import ConfigError
from configs.schema import Pretrain
from configs.terminal import command_parser
from train.cost.estimate import MemoryOf, estimate, group_size
from train.cost.kept import NotKept, only_kept
from train.cost.memory import pretrain_memory
from train.cost.query import CostQuery, make_query, read_queries

# The keys that would make a run fit are searched for so many configs at most: each costs a count.
_MOST_ADVISED = 16


def main(arguments: list[str]) -> int:
    """Carry out the command for pretraining."""
    return answer(arguments, program="train cost", kind=Pretrain, memory_of=pretrain_memory)


def answer(arguments: list[str], *, program: str, kind: type[Any], memory_of: MemoryOf) -> int:
    """Answer for configs of a kind. Return 0 if each fits on at least one of its GPUs, else 1."""
    options = _parser(program).parse_args(arguments)
    queries = list(_queries(options, kind))
    _count_missing(queries, memory_of)
    answers, all_fit = [], True
    for query in queries:
        try:
            if isinstance(query, ConfigError):
                raise query
            found = asdict(estimate(query, memory_of, advises=len(queries) <= _MOST_ADVISED))
        except ConfigError as error:
            if not options.cells:
                raise
            answers.append({"error": str(error)})
            print(error, file=sys.stderr)
            all_fit = False
            continue
        all_fit &= any(gpu["fits"] for gpu in found["gpus"].values())
        answers.append(found)
        if not options.json:
            print(_text(found))
    if options.json:
        is_single = len(answers) == 1 and not options.cells
        print(json.dumps(answers[0] if is_single else answers, indent=1))
    return 0 if all_fit else 1


def _count_missing(queries: Sequence[CostQuery | ConfigError], memory_of: MemoryOf) -> None:
    """Count the networks of several queries whose costs are not kept, on all cores."""
    missing: dict[str, tuple[Any, BatchLayout]] = {}
    for query in queries:
        if isinstance(query, ConfigError):
            continue
        with contextlib.suppress(ConfigError), only_kept():
            layout = divide(query.config, world=query.world, tuned=group_size(query.config))
            try:
                memory_of(query.config, layout)
            except NotKept as name:
                missing[str(name)] = query.config, layout
    workers = min(len(missing), os.cpu_count() or 1)
    if workers > 1:
        # A fork would share the threads of torch.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            list(pool.map(memory_of, *zip(*missing.values(), strict=True)))


def _parser(program: str) -> argparse.ArgumentParser:
    parser = command_parser(program, __doc__)
    parser.add_argument(
        "configs", nargs="*", metavar="CONFIG", help="YAML files, then key=value for all of them"
    )
    parser.add_argument("--cells", type=Path, metavar="FILE", help="JSON lines, one cell per line")
    parser.add_argument("--gpu", help="names from configs/gpus.yaml, for example a40,a100")
    parser.add_argument(
        "--nodes", type=_positive, help="number of nodes (default: from the config)"
    )
    parser.add_argument("--gpus-per-node", type=_positive, help="default: from the config")
    parser.add_argument(
        "--json", action="store_true", help="print JSON; a list for several configs"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or text == "0":
        raise argparse.ArgumentTypeError(f"expected a number from 1 up, found {text!r}")
    return int(text)


def _queries(options: argparse.Namespace, kind: type[Any]) -> Iterator[CostQuery | ConfigError]:
    overrides = [word for word in options.configs if "=" in word]
    paths = [Path(word) for word in options.configs if "=" not in word]
    if bool(paths) == bool(options.cells):
        raise ConfigError("expected a CONFIG, or several, or --cells FILE")
    if options.cells:
        yield from read_queries(options.cells, kind)
    for path in paths:
        yield make_query(
            path,
            overrides,
            kind=kind,
            gpus=options.gpu.split(",") if options.gpu else None,
            nodes=options.nodes,
            gpus_per_node=options.gpus_per_node,
        )


def _text(found: dict[str, Any]) -> str:
    ranks = "1 rank" if found["world"] == 1 else f"{found['world']} ranks"
    head = (
        f"{found['config']}  {found['parameters'] / 1e6:,.1f} M parameters, "
        f"{found['tflop_per_image']:.3g} TFLOP per image, {ranks}"
    )
    return "\n".join([head, *(_gpu_text(name, gpu) for name, gpu in found["gpus"].items())])


def _gpu_text(name: str, gpu: dict[str, Any]) -> str:
    kinds = "  ".join(f"{kind} {size:.3g}" for kind, size in gpu["gib"].items() if size)
    label = name if gpu["type"] == name else f"{name} ({gpu['type']})"
    head = f"  {label}  {gpu['gib']['total']:.1f} of {gpu['capacity_gib']:.1f} GiB per rank"
    if not gpu["fits"]:
        verdict = f"does not fit: {gpu['reason']}; would fit: {gpu['fix']}"
        return f"{head}, {verdict}\n    GiB  {kinds}"
    step = gpu["step_s"]
    interval = f"{step['value']:.2g}, {step['low']:.2g} to {step['high']:.2g} ({step['source']})"
    rate = f"{float(format(gpu['images_per_s'], '.2g')):,g} images/s, {gpu['hours']:.2g} hours"
    return "\n".join([
        f"{head}, fits: about {rate}",
        f"    s/step {interval}",
        f"    micro batch {gpu['micro_batch']}, at most {gpu['max_micro_batch']}",
        f"    GiB  {kinds}",
    ])  # fmt: skip
