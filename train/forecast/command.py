"""Forecast the memory and the speed of a run on each GPU, before it is queued.

Prints the memory of one rank by kind, the largest micro batch that fits, and a guess of the images
per second and seconds per step by a roofline model without communication.
If a config does not fit, it prints the keys that would make it fit.

`ditbench plan` asks it. Example: python -m train forecast configs/pretrain/cifar10.yaml --gpu a40
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.schema import Finetune
from configs.terminal import command_parser
from train.forecast.estimate import forecast
from train.forecast.lora import forecast_lora
from train.forecast.memory import GIB
from train.forecast.query import ForecastQuery, make_query, read_queries


def main(arguments: list[str]) -> int:
    """Carry out the command. Return 0 if every config fits on at least one of its GPUs, else 1."""
    options = _parser().parse_args(arguments)
    forecasts, all_fit = [], True
    for query in _queries(options):
        try:
            if isinstance(query, ConfigError):
                raise query
            found = _forecast(query, exact=options.exact)
        except ConfigError as error:
            if not options.cells:
                raise
            forecasts.append({"error": str(error)})
            print(error, file=sys.stderr)
            all_fit = False
            continue
        all_fit &= any(estimate["fits"] for estimate in found["gpus"].values())
        forecasts.append(found)
        if not options.json:
            print(_text(found))
    if options.json:
        is_single = len(forecasts) == 1 and not options.cells
        print(json.dumps(forecasts[0] if is_single else forecasts, indent=1))
    return 0 if all_fit else 1


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("train forecast", __doc__)
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
        "--exact", action="store_true", help="also count the memory on fake tensors (10-30 s)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON; a list for several configs"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or text == "0":
        raise argparse.ArgumentTypeError(f"expected a number from 1 up, found {text!r}")
    return int(text)


def _queries(options: argparse.Namespace) -> Iterator[ForecastQuery | ConfigError]:
    overrides = [word for word in options.configs if "=" in word]
    paths = [Path(word) for word in options.configs if "=" not in word]
    if bool(paths) == bool(options.cells):
        raise ConfigError("expected a CONFIG, or several, or --cells FILE")
    if options.cells:
        yield from read_queries(options.cells)
    for path in paths:
        yield make_query(
            path,
            overrides,
            gpus=options.gpu.split(",") if options.gpu else None,
            nodes=options.nodes,
            gpus_per_node=options.gpus_per_node,
        )


def _forecast(query: ForecastQuery, *, exact: bool) -> dict[str, Any]:
    """Return the forecast as plain values; `exact` adds the dry run as `exact_gib` of each GPU."""
    if isinstance(query.config, Finetune):
        return forecast_lora(query)
    if not exact:
        return forecast(query).to_json()
    # Imported here: torch takes seconds to import.
    from train.forecast.dry_run import dry_run, forecast_unet

    found = forecast(query) if query.config.model.family == "dit" else forecast_unet(query)
    plain, runs = found.to_json(), {}
    for name, estimate in found.gpus.items():
        layout = divide(query.config, world=query.world, tuned=estimate.micro_batch)
        if layout not in runs:
            memory = asdict(dry_run(query.config, layout))
            runs[layout] = {kind: size / GIB for kind, size in memory.items()}
        plain["gpus"][name]["exact_gib"] = runs[layout]
    return plain


def _text(found: dict[str, Any]) -> str:
    if "macs" not in found:
        head = f"{found['config']}  {found['parameters'] / 1e6:,.1f} M parameters of a LoRA"
        return "\n".join([head, *(_gpu_text(name, gpu) for name, gpu in found["gpus"].items())])
    macs = ", ".join(f"{name} {count / 1e9:.4g}" for name, count in found["macs"].items())
    ranks = "1 rank" if found["world"] == 1 else f"{found['world']} ranks"
    head = (
        f"{found['config']}  {found['parameters'] / 1e6:,.1f} M parameters, "
        f"{found['gmacs_per_image']:.4g} GMACs per image ({macs}), {ranks}"
    )
    return "\n".join([head, *(_gpu_text(name, gpu) for name, gpu in found["gpus"].items())])


def _gpu_text(name: str, gpu: dict[str, Any]) -> str:
    kinds = "  ".join(f"{kind} {size:.3g}" for kind, size in gpu["gib"].items() if size)
    label = name if gpu["type"] == name else f"{name} ({gpu['type']})"
    head = f"  {label}  {gpu['gib']['total']:.1f} of {gpu['capacity_gib']:.1f} GiB per rank"
    if gpu["fits"]:
        if "hours" in gpu:
            rate = f"{gpu['hours']:.2g} hours"
        else:
            rate = f"{float(format(gpu['images_per_s'], '.2g')):,g} images/s, without communication"
        verdict = f"fits: about {rate}"
    else:
        verdict = f"does not fit: {gpu['reason']}; would fit: {gpu['fix']}"
    lines = [
        f"{head}, {verdict}",
        f"    micro batch {gpu['micro_batch']}, at most {gpu['max_micro_batch']}"
        if "max_micro_batch" in gpu
        else f"    micro batch {gpu['micro_batch']}",
        f"    GiB  {kinds}",
    ]
    if gpu["fits"]:
        step = gpu["step_s"]
        interval = f"{step['low']:.2g} to {step['high']:.2g}"
        lines.insert(1, f"    s/step {step['value']:.2g}, {interval} ({step['source']})")
    if "exact_gib" in gpu:
        exact = "  ".join(f"{kind} {size:.3g}" for kind, size in gpu["exact_gib"].items() if size)
        lines.append(f"    GiB in a dry run  {exact}")
    return "\n".join(lines)
