"""Say what a run will need and do on which GPU, before it is queued.

Memory of one rank by kind, the largest micro batch that fits, images per second by the roofline,
and where a config does not fit, what would make it fit.

Example: python -m train forecast configs/pretrain/cifar10.yaml train.compile=true --gpu a40,a100
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs.checks.batch import divide
from configs.errors import ConfigError
from train.forecast.estimate import Forecast, forecast
from train.forecast.query import ForecastQuery, make_query, read_queries


def main(arguments: list[str]) -> int:
    """Carry out the command; 0 where every cell fits on one of its GPUs, 1 where one does not."""
    options = _parser().parse_args(arguments)
    said, good = [], True
    for cell in _cells(options):
        try:
            if isinstance(cell, ConfigError):
                raise cell
            found = _forecast(cell, exact=options.exact)
        except ConfigError as error:
            if not options.cells:
                raise
            said.append({"error": str(error)})
            print(error, file=sys.stderr)
            good = False
            continue
        good &= any(outlook["fits"] for outlook in found["gpus"].values())
        said.append(found)
        if not options.json:
            print(_text(found))
    if options.json:
        alone = len(said) == 1 and not options.cells
        print(json.dumps(said[0] if alone else said, indent=1))
    return 0 if good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m train forecast",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "configs", nargs="*", metavar="CONFIG", help="YAML files, and key=value for all of them"
    )
    parser.add_argument("--cells", type=Path, metavar="FILE", help="JSON lines, a cell each")
    parser.add_argument("--gpu", help="GPUs of configs/gpus.yaml, such as a40,a100")
    parser.add_argument("--nodes", type=_positive, help="nodes; else the config's")
    parser.add_argument("--gpus-per-node", type=_positive, help="GPUs per node; else the config's")
    parser.add_argument(
        "--exact", action="store_true", help="count on tensors without data too (10-30 s)"
    )
    parser.add_argument("--json", action="store_true", help="for machines; a list for several")
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or text == "0":
        raise argparse.ArgumentTypeError(f"expected a number from 1 up, found {text!r}")
    return int(text)


def _cells(options: argparse.Namespace) -> Iterator[ForecastQuery | ConfigError]:
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


def _forecast(cell: ForecastQuery, *, exact: bool) -> dict[str, Any]:
    """The forecast as plain values; counted ones stand in each GPU's `exact_gib`."""
    if not exact:
        return forecast(cell).to_json()
    # Imported where wanted: torch takes seconds.
    from train.forecast import counted

    is_dit = cell.config.model.family == "dit"
    found: Forecast = forecast(cell) if is_dit else counted.forecast_unet(cell)
    plain, counts = found.to_json(), {}
    for name, outlook in found.gpus.items():
        layout = counted.division_of(divide(cell.config, world=cell.world), outlook)
        if layout not in counts:
            counts[layout] = counted.counted_gib(cell.config, layout)
        plain["gpus"][name]["exact_gib"] = counts[layout]
    return plain


def _text(found: dict[str, Any]) -> str:
    macs = ", ".join(f"{name} {count / 1e9:.4g}" for name, count in found["macs"].items())
    ranks = "1 rank" if found["world"] == 1 else f"{found['world']} ranks"
    head = (
        f"{found['config']}  {found['parameters'] / 1e6:,.1f} M parameters, "
        f"{found['gmacs_per_image']:.4g} GMACs per image ({macs}), {ranks}"
    )
    return "\n".join([head, *(_gpu_text(name, gpu) for name, gpu in found["gpus"].items())])


def _gpu_text(name: str, gpu: dict[str, Any]) -> str:
    kinds = "  ".join(f"{kind} {size:.3g}" for kind, size in gpu["gib"].items() if size)
    known = name if gpu["type"] == name else f"{name} ({gpu['type']})"
    head = f"  {known}  {gpu['gib']['total']:.1f} of {gpu['capacity_gib']:.1f} GiB per rank"
    if gpu["fits"]:
        rate = float(f"{gpu['images_per_s']:.2g}")
        verdict = f"fits: about {rate:,g} images/s, communication not counted"
    else:
        verdict = f"does not fit: {gpu['reason']}; would fit: {gpu['fix']}"
    lines = [
        f"{head}, {verdict}",
        f"    micro batch {gpu['micro_batch']}, at most {gpu['max_micro_batch']}",
        f"    GiB  {kinds}",
    ]
    if "exact_gib" in gpu:
        counted = "  ".join(f"{kind} {size:.3g}" for kind, size in gpu["exact_gib"].items())
        lines.append(f"    counted  {counted}")
    return "\n".join(lines)
