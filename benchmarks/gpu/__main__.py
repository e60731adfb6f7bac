"""Measure a GPU in pieces, the most telling first: its kernels, the trainer, the tests.

    python3 -m benchmarks.gpu [--minutes 9] [--only trainer/xl-compiled] [--again] [--out FOLDER]
    python3 -m benchmarks.gpu page FOLDER/results.jsonl
    python3 -m benchmarks.gpu wheels FOLDER [--bare] [--optional]

Needs no virtualenv. Each piece of `plan.toml` is a process of its own, and a figure is written to
FOLDER/results.jsonl (default docs/measurements/gpu-NAME) as soon as it is taken. The same command,
typed again, goes on with the pieces that are left; one that failed comes last. `page` writes
README.md beside the results, on any machine. `wheels` downloads the packages that a machine with no
network lacks. Output, runs and compiled kernels are in LOGS (default logs/), under FOLDER's name.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu import wheels
from benchmarks.gpu.page import write_page
from benchmarks.gpu.pieces import ROOT, Line, read_plan, run_pieces
from benchmarks.gpu.results import passed_tests, read_results, unfinished


def main(arguments: list[str]) -> int:
    """Measure what is left; return 1 if a piece failed, 2 for misuse."""
    if arguments[:1] == ["page"]:
        print(write_page(Path(arguments[1])))
        return 0
    if arguments[:1] == ["wheels"]:
        return wheels.main(arguments[1:])
    options = _options(arguments)
    if options.tiny:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    asked = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    device = "CPU, tiny sizes" if options.tiny else _output(*asked).partition("\n")[0]
    if not device:
        print("nvidia-smi finds no GPU; --tiny tries the command on a CPU", file=sys.stderr)
        return 2
    short = re.sub(r"[^a-z0-9]+", "-", device.lower().removeprefix("nvidia "))
    out = options.out or ROOT / "docs" / "measurements" / f"gpu-{short}"
    logs = Path(os.environ.get("LOGS") or ROOT / "logs").resolve() / out.name
    for folder in (out, logs):
        folder.mkdir(parents=True, exist_ok=True)
    plan = read_plan(Path(__file__).with_name("tiny.toml" if options.tiny else "plan.toml"))
    chosen = [piece for piece in plan if piece.is_chosen(options.only)]
    if not chosen:
        print(f"no such piece; choose of {', '.join(p.name for p in plan)}", file=sys.stderr)
        return 2
    results = out / "results.jsonl"
    before = [] if options.again else read_results(results)
    pieces = unfinished(chosen, before)
    about: Line = {"device": device, "commit": _output("git", "describe", "--always", "--dirty")}
    failed = False
    ends = time.time() + 60 * options.minutes
    with results.open("a", encoding="utf-8") as file:
        for line in run_pieces(pieces, ends=ends, logs=logs, passed=passed_tests(before)):
            print(json.dumps(line | about), file=file, flush=True)
            _show(line)
            failed |= line["state"] in ("failed", "timed out")
    left = [piece.name for piece in unfinished(chosen, read_results(results))]
    print(f"left: {', '.join(left) or 'nothing'}; python3 -m benchmarks.gpu page {results}")
    return int(failed)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="time for this command")
    parser.add_argument("--tiny", action="store_true", help="only try the command, on a CPU")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--only", action="append", metavar="PART[/NAME]", help="these pieces")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    return parser.parse_args(arguments)


def _show(line: Line) -> None:
    """Print a line of the results as text, a test as `path::test PASSED`."""
    state, name = line["state"], f"{line['part']}/{line['name']}"
    if line["part"] == "tests" and line["figure"]:
        name, state = line["figure"], "PASSED" if state == "measured" else state.upper()
    elif line["figure"] not in ("", line["name"]):
        name += f" {line['figure']}"
    print(name, state, line.get("reason") or json.dumps(line.get("result", {})), flush=True)
    if "tail" in line:
        print(line["tail"], flush=True)


def _output(*command: str) -> str:
    """Return what a command prints, or nothing if it fails."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.check_output(
            command, cwd=ROOT, text=True, stderr=subprocess.DEVNULL
        ).strip()
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
