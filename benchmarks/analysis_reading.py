"""Measure how fast logs are read, in MB/s and against a bare loop over lines; and event files.

python -m benchmarks.analysis_reading        (tbparse is compared if it is installed)
"""

import importlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from analysis.measure.cache import SETTLED_S
from analysis.measure.overview import overview
from analysis.read.find import read_all
from analysis.read.formats.tensorboard import read_events
from analysis.read.formats.text import read_text
from analysis.report.report import report
from tests.analysis import foreign_logs as write
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

ROUNDS = 7
RECORDS = 200
TEXTS: tuple[tuple[str, Callable[[write.SyntheticLog], bytes]], ...] = (
    ("DiT", write.dit),
    ("torchtitan, in colours", write.titan),
    ("ai-toolkit's bars", write.ai_toolkit),
    ("kohya's bars", write.kohya),
    ("nanoGPT", write.nano_gpt),
    ("Megatron", write.megatron),
    ("Composer", write.composer),
    ("HF dicts, one width", write.trainer_console),
    ("HF dicts, full digits", write.trainer_dicts),
    ("MLPerf, short numbers", write.mlperf),
    ("MLPerf, full digits", write.mlperf_stats),
)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The time of one function over that of another, in alternating rounds: median and range."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} [{self.low:.2f}, {self.high:.2f}]"


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of a call, in which other load on the machine does not count."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def ratio(work: Callable[[], object], other: Callable[[], object], *, rounds: int) -> Ratio:
    """Return how many times as long the one takes as the other, without a first round."""
    found = [seconds(work) / seconds(other) for _ in range(rounds + 1)][1:]
    return Ratio(middle=median(found), low=min(found), high=max(found))


def split_lines(path: Path) -> int:
    """Return the words of a file, counted in a loop over its lines: what reading takes at least."""
    with path.open("rb") as file:
        return sum(len(line.split()) for line in file)


def text_logs(folder: Path) -> None:
    """Measure dense logs, in which every line is a metric, and a sparse one: one in a hundred."""
    path = folder / "log"
    planted = write.synthetic_log(n=150_000, every=1)
    chatter = b"2024-01-01 00:00:00 INFO what a library says that a person seldom reads, at length"
    some = write.dit(write.synthetic_log(n=10_000, every=1)).split(b"\n")
    sparse = b"\n".join(line for metric in some for line in [*[chatter] * 99, metric])
    for name, data in (*((name, make(planted)) for name, make in TEXTS), ("DiT, sparse", sparse)):
        path.write_bytes(data)
        spent = min(seconds(lambda: read_text(path, name="x")) for _ in range(ROUNDS))
        size = len(data) / 1e6
        slower = ratio(lambda: read_text(path, name="x"), lambda: split_lines(path), rounds=ROUNDS)
        print(f"{name}: {size:.0f} MB, {size / spent:.0f} MB/s, {slower} times a loop over lines")


def bars(folder: Path) -> None:
    """Measure time and peak memory for a million bars, each drawn ten times (1 GB)."""
    path = folder / "bars"
    planted = write.ai_toolkit(write.synthetic_log(n=1_000_000, every=1, steps_per_s=0.5))
    drawn = planted.split(b"\r")
    with path.open("wb") as file:
        for first in range(0, len(drawn), 1000):
            file.write(b"".join((bar + b"\r") * 10 for bar in drawn[first : first + 1000]))
    code = (
        "import sys, time; from pathlib import Path\n"
        "from analysis.read.formats.text import read_text\n"
        "[log] = read_text(Path(sys.argv[1]), name='x')\n"
        "status = Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]\n"
        "peak = int(status) / 1024\n"
        "print(f'{len(log):,} steps: {time.process_time():.1f} s of CPU, peak {peak:.0f} MB')"
    )
    print(f"bars, {path.stat().st_size / 1e9:.2f} GB: ", end="", flush=True)
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def event_files(folder: Path) -> None:
    """Measure an event file of TensorBoard's own writer, five tags, and tbparse if installed."""
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder / "tb"))
    for step in range(10_000):
        for tag in ("loss", "lr", "grad_norm", "train_s", "gpu_gb"):
            writer.add_scalar(tag, step * 0.5, step)
    writer.close()
    [path] = (folder / "tb").glob("events*")
    ours = min(seconds(lambda: read_events(path, name="x")) for _ in range(ROUNDS))
    print(f"event file: {50_000 / ours:,.0f} scalars per second")
    try:
        peer = importlib.import_module("tbparse")
    except ImportError:
        print("  tbparse is not installed")
        return
    faster = ratio(
        lambda: peer.SummaryReader(str(folder / "tb")).scalars,
        lambda: read_events(path, name="x"),
        rounds=3,
    )
    print(f"  {faster} times as fast as tbparse")


def fifty_runs(folder: Path) -> None:
    """Measure a report of 50 runs of 10,000 steps."""
    for number in range(50):
        generate_run(folder / "logs" / f"run{number}", SyntheticRun(intervals=1000, seed=number))
    begun = time.perf_counter()
    made = report(read_all([str(folder / "logs")]), title="Runs", beside=folder, margin=0.01)
    spent = time.perf_counter() - begun
    print(f"report of 50 runs of 10,000 steps: {spent:.1f} s, {len(made.html) / 1e6:.2f} MB")


def thousand_runs(folder: Path) -> None:
    """Measure `runs` over 1,000 run folders, without and with the cache beside them."""
    logs = folder / "thousand"
    generate_run(logs / "run0", SyntheticRun(intervals=RECORDS))
    for number in range(1, 1000):
        shutil.copytree(logs / "run0", logs / f"run{number}")
    time.sleep(SETTLED_S)
    begun = time.process_time()
    read = overview([str(logs)])
    first = time.process_time() - begun
    again = min(seconds(lambda: overview([str(logs)])) for _ in range(ROUNDS))
    assert overview([str(logs)]) == read
    print(
        f"runs over 1,000 folders of {RECORDS} records: {first:.1f} s of CPU, "
        f"{again:.2f} s through the cache ({first / again:.0f} times faster)"
    )


def main() -> None:
    """Run every measurement, in one process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text_logs(folder)
        event_files(folder)
        fifty_runs(folder)
        thousand_runs(folder)
        bars(folder)


if __name__ == "__main__":
    main()
