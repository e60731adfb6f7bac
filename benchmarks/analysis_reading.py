"""Measure how fast logs are read, in MB/s and against a bare loop over lines; and event files.

python -m benchmarks.analysis_reading
"""

import importlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from analysis.measure.overview import run_row
from analysis.read.find import read_all
from analysis.read.formats.tensorboard import read_events
from analysis.read.text.read import read_text
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


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of a call, in which other load on the machine does not count."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


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
        loop = min(seconds(lambda: split_lines(path)) for _ in range(ROUNDS))
        slower = f"{spent / loop:.1f} times as long as a loop over lines"
        print(f"{name}: {size:.0f} MB, {size / spent:.0f} MB/s, {slower}")


def event_files(folder: Path) -> None:
    """Measure an event file of TensorBoard's own writer with five tags."""
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder / "tb"))
    for step in range(10_000):
        for tag in ("loss", "lr", "grad_norm", "train_s", "gpu_gb"):
            writer.add_scalar(tag, step * 0.5, step)
    writer.close()
    [path] = (folder / "tb").glob("events*")
    ours = min(seconds(lambda: read_events(path, name="x")) for _ in range(ROUNDS))
    print(f"event file: {50_000 / ours:,.0f} scalars per second")


def thousand_runs(folder: Path) -> None:
    """Measure `runs` over 1,000 run folders."""
    logs = folder / "thousand"
    generate_run(logs / "run0", SyntheticRun(intervals=RECORDS))
    for number in range(1, 1000):
        shutil.copytree(logs / "run0", logs / f"run{number}")
    spent = seconds(lambda: [run_row(log) for log in read_all([str(logs)]).logs])
    print(f"runs over 1,000 folders of {RECORDS} records: {spent:.1f} s of CPU")


def main() -> None:
    """Run every measurement, in one process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text_logs(folder)
        event_files(folder)
        thousand_runs(folder)


if __name__ == "__main__":
    main()
