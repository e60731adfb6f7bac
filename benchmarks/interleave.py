"""Interleaved timing of several steps in one process, so that the machine's drift cancels.

Every round runs each arm once, in the opposite order of the round before. A ratio is taken
within each round; its median and quartiles over the rounds are reported.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch

from train.engine.environment import cpu_model, versions

Arm = Callable[[], None]
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The ratio of two times: median and quartiles over the rounds."""

    name: str
    median: float
    low: float
    high: float
    rounds: int


def ratio(name: str, over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Return the ratio `over` / `under`, taken round by round."""
    each = [a / b for a, b in zip(over, under, strict=True)]
    low, median, high = statistics.quantiles(each, n=4, method="inclusive")
    return Ratio(name=name, median=median, low=low, high=high, rounds=len(each))


class Stopwatch:
    """Measures seconds by the chosen clock, including the work of the device."""

    def __init__(self, *, clock: str, device: torch.device) -> None:
        self._clock, self._device = CLOCKS[clock], device

    def now(self) -> float:
        """Wait for the device and return the time."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return self._clock()

    def time(self, arm: Arm) -> float:
        """Run `arm` and return its seconds."""
        begin = self.now()
        arm()
        return self.now() - begin


def interleave(
    arms: dict[str, Arm], *, rounds: int, warmup: int, watch: Stopwatch
) -> dict[str, list[float]]:
    """Return the seconds of every arm in every round, after `warmup` rounds that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(warmup + rounds):
        print(f"round {number + 1} of {warmup + rounds}", file=sys.stderr)
        for name in list(arms) if number % 2 else reversed(arms):
            taken = watch.time(arms[name])
            if number >= warmup:
                seconds[name].append(taken)
    return seconds


def parser(description: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark of a training step has."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=rounds, help="rounds that count")
    options.add_argument("--batch", type=int, default=16, help="images per step")
    options.add_argument("--width", type=int, default=384)
    options.add_argument("--depth", type=int, default=12)
    options.add_argument("--heads", type=int, default=6)
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: CPU time of the process, for a shared machine (with --threads 1)",
    )
    options.add_argument("--json", action="store_true", help="print JSON")
    return options


def conditions(*, device: torch.device, options: argparse.Namespace) -> dict[str, object]:
    """Return the device, sizes and versions behind the figures."""
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else cpu_model(),
        "threads": torch.get_num_threads(),
        "clock": options.clock,
        "batch": options.batch,
        "width": options.width,
        "depth": options.depth,
        "heads": options.heads,
    } | versions()


def report(ratios: list[Ratio], *, taken: dict[str, object], as_json: bool) -> None:
    """Print the ratios and the conditions."""
    if as_json:
        print(json.dumps({"taken": taken, "ratios": [asdict(each) for each in ratios]}), flush=True)
        return
    widest = max(len(each.name) for each in ratios)
    for each in ratios:
        spread = f"[{each.low:.3f}, {each.high:.3f}]"
        print(f"{each.name:<{widest}}  {each.median:.3f} {spread}  {each.rounds} rounds")
    print(", ".join(f"{name} {value}" for name, value in taken.items()))
