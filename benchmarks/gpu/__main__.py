"""Measure a GPU in the first hour with it: its kernels, the trainer, and what was predicted.

    python -m benchmarks.gpu [--minutes 20] [--out docs/measurements/gpu-NAME]
    python -m benchmarks.gpu --page docs/measurements/gpu-NAME

`plan.toml` lists the measurements. Each part has a share of the minutes, and each measurement is a
process of its own: one that fails, hangs or lacks a package costs no other. Results go line by line
to OUT/results.jsonl, and at the end to the page OUT/README.md. `--page` writes only the page;
`--only` measures one part, again if it was measured before. Output and runs are in LOGS (default
logs/), under OUT's name. docs/measurements/README.md describes the files.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.gpu.page import PARTS, Line, write_page

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300.0
# A line of pytest's summary.
_TESTED = re.compile(r"(PASSED|FAILED|ERROR|SKIPPED) (?:\[\d+\] )?(\S+?)(?: - |: |$)(.*)")


def main(arguments: list[str]) -> int:
    """Measure and write the page; return 1 if anything failed, 2 for misuse."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="time for all parts")
    parser.add_argument("--tiny", action="store_true", help="only try the command, on a CPU")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part")
    parser.add_argument("--page", type=Path, metavar="OUT", help="only write the page of OUT")
    options = parser.parse_args(arguments)
    if options.page:
        print(write_page(options.page))
        return 0
    if options.tiny:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    asked = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    device = "CPU, tiny sizes" if options.tiny else _said(*asked).partition("\n")[0]
    if not device:
        print("nvidia-smi finds no GPU; --tiny tries the command on a CPU", file=sys.stderr)
        return 2
    short = re.sub(r"[^a-z0-9]+", "-", device.lower().removeprefix("nvidia "))
    out = options.out or ROOT / "docs" / "measurements" / f"gpu-{short}"
    logs = Path(os.environ.get("LOGS") or ROOT / "logs").resolve() / out.name
    for folder in (out, logs):
        folder.mkdir(parents=True, exist_ok=True)
    about = {"device": device, "commit": _said("git", "describe", "--always", "--dirty")}
    plan = Path(__file__).with_name("tiny.toml" if options.tiny else "plan.toml")
    failed = False
    try:
        for line in measured(plan, options.only or PARTS, 60 * options.minutes, logs):
            with (out / "results.jsonl").open("a", encoding="utf-8") as file:
                print(json.dumps(line | about), file=file)
            print(line["part"], line["name"], line["state"], line.get("reason", ""), flush=True)
            failed |= line["state"] in ("failed", "timed out")
    finally:
        print(write_page(out))
    return int(failed)


def measured(plan: Path, parts: Sequence[str], seconds: float, logs: Path) -> Iterator[Line]:
    """Run parts of a plan, each until its share of the seconds is over; yield lines."""
    tree = tomllib.loads(plan.read_text(encoding="utf-8"))
    shares = {part: share for part, share in tree["shares"].items() if part in parts}
    ends = time.time()
    for part, share in shares.items():
        ends += seconds * share / sum(shares.values())
        for name, words in tree[part].items():
            while "{" in words:
                words = words.format_map(tree["words"])
            needs = " ".join(tree["needs"][word] for word in tree["needs"] if word in words)
            missing = [each for each in needs.split() if not importlib.util.find_spec(each)]
            began = time.time()
            left = min(LIMIT_S, ends - began)
            why = f"needs {', '.join(missing)}" if missing else "no time was left" * (left <= 0)
            skipped = [{"state": "skipped", "reason": why}]
            for found in skipped if why else run(words, logs / f"{part}-{name}", seconds=left):
                line = {"part": part, "name": name} | found | {"time": began}
                line["wall_s"] = round(time.time() - began, 1)
                yield line | {"command": f"python -m {words}"}


def run(words: str, stem: Path, *, seconds: float) -> Iterator[Line]:
    """Run a module for at most so many seconds; yield its results, and its failure."""
    said, ends = stem.with_suffix(".out"), time.time() + seconds
    with said.open("w") as out, said.with_suffix(".err").open("w") as err, said.open() as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", *shlex.split(words)], cwd=ROOT, stdout=out, stderr=err,
            env=os.environ | {"LOGS": str(stem.parent)}, start_new_session=True,
        )  # fmt: skip
        try:
            while process.poll() is None and time.time() < ends:
                yield from _results(lines)
                time.sleep(0.2)
            status = process.poll()
            yield from _results(lines)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status is None:
        yield {"state": "timed out", "reason": f"killed after {seconds:.0f} s"}
    elif status:
        text = (said.read_text() + said.with_suffix(".err").read_text()).strip()
        yield {"state": "failed", "reason": text.rpartition("\n")[2] or f"status {status}"}


def _results(lines: TextIO) -> Iterator[Line]:
    """Yield what whole lines say: JSON objects, and the summary of pytest."""
    while (line := lines.readline()).endswith("\n"):
        found: Any = None
        if tested := _TESTED.match(line):
            state = {"PASSED": "passed", "SKIPPED": "skipped"}.get(tested[1], "failed")
            found = {"name": tested[2], state: tested[3].strip()}
        with contextlib.suppress(ValueError):
            found = found or json.loads(line)
        if isinstance(found, dict):
            named = {"name": found.pop("name")} if "name" in found else {}
            bad = next((word for word in ("failed", "skipped") if word in found), None)
            rest = {"reason": found[bad]} if bad else {"result": found}
            yield named | rest | {"state": bad or "measured"}
    lines.seek(lines.tell() - len(line.encode()))


def _said(*command: str) -> str:
    """Return what a command prints, or nothing if it fails."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.check_output(command, cwd=ROOT, text=True).strip()
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
