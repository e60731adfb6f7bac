"""The memory count of `ditbench plan` beside whole dry runs, and beside real steps on a CPU.

    python -m benchmarks.memory_count --results FILE [--only PATTERN]     # counts what FILE lacks
    python -m benchmarks.memory_count --results FILE --page > docs/measurements/memory-count.md

The count runs networks of a few blocks and a micro batch of a few images on tensors without data
(`train/cost`). A dry run takes the same step with all blocks and images; the real steps are those
of small networks in float32 on a CPU, and the bytes those that torch's allocator reports.
"""

import argparse
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from configs.checks.batch import BatchLayout, divide
from configs.load import load, resolve
from configs.schema import Pretrain
from train.cost.line import RunCost
from train.cost.memory import GIB, stacks_of
from train.cost.pretrain import count_cost, run_steps
from train.engine.distributed import Ranks, process_group
from train.pretrain.train_state import make_train_state, zero_batch

_PAGE = Path(__file__).with_name("memory_count.md")
_CONFIGS = sorted(Path("configs/pretrain").glob("*.yaml"))
# The layouts of one config, as words after it and the number of ranks.
_LAYOUTS: dict[str, tuple[int, list[str]]] = {
    "one GPU": (1, ["layout.shard=1"]),
    "DDP on 8": (8, ["layout.shard=1"]),
    "FSDP2 on 8": (8, ["layout.shard=8"]),
    "FSDP2 on 8, not resharded": (8, ["layout.shard=8", "layout.reshard=false"]),
    "HSDP 4 x 2": (8, ["layout.shard=2"]),
    "TP 2, FSDP2 4": (8, ["layout.tensor=2", "layout.shard=4"]),
    "64 microbatches": (1, ["layout.shard=1", "train.micro_batch=8"]),
    "64 microbatches, noise measured": (
        1,
        ["layout.shard=1", "train.micro_batch=8", "gns.enabled=true"],
    ),
    "full checkpointing": (1, ["layout.shard=1", "activation_checkpointing.mode=full"]),
    "selective, every 2": (
        1,
        ["layout.shard=1", "activation_checkpointing.mode=selective",
         "activation_checkpointing.every=2"],
    ),
    "selective, by operation": (
        1,
        ["layout.shard=1", "activation_checkpointing.mode=selective",
         "activation_checkpointing.every=null"],
    ),
}  # fmt: skip
_LAYOUTS_OF = Path("configs/pretrain/dit-s2.yaml")
_CLOSE = {"data": {"source": "dummy", "size": 36, "channels": 4, "classes": 10}}
_DIT = {"width": 128, "depth": 6, "heads": 4, "patch": 1, "qk_norm": False}
_JIT = _DIT | {"family": "jit", "jit": {"class_tokens": 4, "class_tokens_from": 2}}
del _JIT["qk_norm"]
_UNET = {
    "family": "unet",
    "unet": {"width": 64, "layers": 1, "mults": [1, 2], "attention": [False, True]},
}
# Small networks that really train here, on more than 1,024 tokens.
REAL: dict[str, dict[str, Any]] = {
    "DiT": {"model": _DIT},
    "DiT, full checkpointing": {"model": _DIT, "activation_checkpointing": {"mode": "full"}},
    "DiT, compiled": {"model": _DIT, "train": {"compile": True}},
    "JiT": {"model": _JIT},
    "U-Net": {"model": _UNET},
    "U-Net, compiled": {"model": _UNET, "train": {"compile": True}},
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row: its `name`, and how to get its figures."""

    name: str
    measure: Callable[[], dict[str, Any]]


def cases() -> Iterator[Case]:
    """Yield all rows of both tables."""
    for path in _CONFIGS:
        own = load(path, [])
        assert isinstance(own, Pretrain)
        # Compiled, a U-Net counts as eager.
        for compiled in (False, True)[: 1 if own.model.family == "unet" else 2]:
            words, world = [f"train.compile={str(compiled).lower()}"], own.resources.world
            name = f"{path.stem}, {'compiled' if compiled else 'eager'}"
            yield _dry(name, path, words, world)
    for layout, (world, words) in _LAYOUTS.items():
        for compiled in (False, True):
            name = f"{layout}, {'compiled' if compiled else 'eager'}"
            both = ["gns.enabled=false", *words, f"train.compile={str(compiled).lower()}"]
            yield _dry(f"layout: {name}", _LAYOUTS_OF, both, world)
    for name, groups in REAL.items():
        yield Case(name=f"real: {name}", measure=partial(real_row, groups))


def _dry(name: str, path: Path, words: list[str], world: int) -> Case:
    return Case(name=name, measure=partial(dry_row, path, words, world=world))


def dry_row(path: Path, words: list[str], *, world: int) -> dict[str, Any]:
    """Return the count and a dry run of the whole step of a config on rank 0 of `world`."""
    config = load(path, words)
    assert isinstance(config, Pretrain)
    layout = divide(config, world=world)
    cost, count_s = _timed(lambda: _counted(config, layout))
    depths = {name: stack.depth for name, stack in stacks_of(config, layout).items()}
    found = cost.memory(layout.micro_batch, layout.accumulation, depths)
    trials, whole_s = _timed(lambda: run_steps(config, layout))
    whole = trials[layout.accumulation > 1]
    kinds = {
        kind: getattr(found, kind) / size - 1
        for kind, size in whole.kinds.items()
        if size and (kind != "flops" or layout.accumulation <= 2)
    }
    worst = max(kinds, key=lambda kind: abs(kinds[kind]))
    return {
        "images": layout.micro_batch,
        "parameters": found.numbers,
        "count": found.peak,
        "whole": whole.peak(),
        "worst": worst,
        "worst_error": kinds[worst],
        "count_s": count_s,
        "whole_s": whole_s,
    }


def real_row(groups: dict[str, Any]) -> dict[str, Any]:
    """Return the count and the bytes that torch allocates in a real step here, in float32."""
    config = real_config(groups)
    layout = divide(config, world=1)
    # The CPU has no kernel of its own for RMS norm, and keeps more than a GPU's.
    with mock.patch("train.cost.fake_gpu._fused_rms_norm", F.rms_norm):
        cost, count_s = _timed(lambda: _counted(config, layout))
    depths = {name: stack.depth for name, stack in stacks_of(config, layout).items()}
    found = cost.memory(layout.micro_batch, 1, depths)
    held = found.parameters + found.optimizer + found.average
    # Past its limit of graphs for one function, torch.compile would run the real blocks eagerly.
    torch._dynamo.reset()
    added, whole_s = _timed(lambda: allocated_bytes(config, layout))
    return {
        "images": layout.micro_batch,
        "parameters": found.numbers,
        "count": found.peak,
        "whole": held + added,
        "count_s": count_s,
        "whole_s": whole_s,
    }


def real_config(groups: dict[str, Any]) -> Pretrain:
    """Return the config of a real step: float32, where the CPU's autocast is not a GPU's."""
    train = {"precision": "fp32", "compile": False, "global_batch": 4} | groups.get("train", {})
    config = resolve({**_CLOSE, **groups, "train": train}, source="memory_count")
    assert isinstance(config, Pretrain)
    return config


def allocated_bytes(config: Pretrain, layout: BatchLayout) -> int:
    """Return the most bytes that a later step here adds to what is held between steps."""
    ranks = Ranks(rank=0, world=1, local_rank=0, local_world=1, device=torch.device("cpu"))
    with process_group(ranks):
        state = make_train_state(config, layout=layout, ranks=ranks)

        def step() -> None:
            batch = zero_batch(config, images=layout.micro_batch, device=ranks.device)
            state.losses(batch).sum().backward()
            state.update(1)

        step()
        step()
        return added_bytes(step)


def added_bytes(step: Callable[[], None]) -> int:
    """Return the most bytes that torch's CPU allocator adds while `step` runs, by the profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    held = most = 0
    results: Any = found.profiler.kineto_results
    for event in sorted(results.events(), key=lambda each: each.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def _counted(config: Pretrain, layout: BatchLayout) -> RunCost:
    return count_cost(config, layout, stacks_of(config, layout))


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.perf_counter()
    return function(), time.perf_counter() - begun


def page(rows: dict[str, dict[str, Any]]) -> str:
    """Return the page of docs/measurements from the results."""
    tables: dict[str, list[str]] = {"configs": [], "layouts": [], "real": []}
    for name, row in rows.items():
        table = "real" if name.startswith("real: ") else "configs"
        table = "layouts" if name.startswith("layout: ") else table
        cells = [
            name.partition(": ")[2] or name,
            f"{row['parameters'] / 1e6:,.1f}",
            f"{row['images']}",
            f"{row['count'] / GIB:.3f}",
            f"{row['whole'] / GIB:.3f}",
            f"{row['count'] / row['whole'] - 1:+.2%}",
        ]
        if "worst" in row:
            cells.append(f"{row['worst']} {row['worst_error']:+.2%}")
        cells += [f"{row['count_s']:.0f}", f"{row['whole_s']:.0f}"]
        tables[table].append(f"| {' | '.join(cells)} |")
    off = max(abs(r["count"] / r["whole"] - 1) for n, r in rows.items() if "worst" in r)
    real = [r for n, r in rows.items() if "worst" not in r and "U-Net, compiled" not in n]
    off_real = max(abs(r["count"] / r["whole"] - 1) for r in real)
    return _PAGE.read_text(encoding="utf-8").format(
        **{name: "\n".join(lines) for name, lines in tables.items()},
        torch=torch.__version__.partition("+")[0],
        off=f"{off:.2%}",
        off_real=f"{off_real:.2%}",
    )


def main() -> int:
    """Count what the results lack, or print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--results", type=Path, required=True, help="JSON lines, one per row")
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose name has it")
    parser.add_argument("--page", action="store_true", help="print the page from the results")
    options = parser.parse_args()
    lines = options.results.read_text().splitlines() if options.results.is_file() else []
    known = {row.pop("name"): row for row in map(json.loads, lines)}
    wanted = [case for case in cases() if re.search(options.only, case.name)]
    if options.page:
        ordered = [case.name for case in wanted if case.name in known]
        print(page({name: known[name] for name in ordered}), end="")
        return 0
    warnings.simplefilter("ignore")  # the compiler warns
    for case in wanted:
        if case.name in known:
            continue
        row = {"name": case.name, **case.measure()}
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
