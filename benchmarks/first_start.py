"""Compare the finish of `submit --first` with that of a fixed type of GPU, on replayed queues.

    python -m benchmarks.first_start [--states 10] [--seed 0]

It needs the one-machine Slurm. A queue is a random number of other jobs on each of its four nodes,
each for up to 20 s. It is replayed three times: for a run on an A40 node, on an A100 node, and on
whichever starts first, the faster one named first, as `ditbench when` advises. The run sleeps 8 s
on an A40 and 5 s on an A100.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from configs.run.folder import ROOT, RunFolder
from configs.run.records import state
from tests.slurm.cluster import NODES, Cluster, wait_until

SHAPES = ("a40:1x2", "a100:1x2", "a100:1x2,a40:1x2")
PROGRAM = "case $SLURMD_NODENAME in a40*) sleep 8 ;; *) sleep 5 ;; esac\n"
CONFIG = """\
kind: command
run: bash work.sh
files: [work.sh]
resources: {gpus_per_node: 2, cpus_per_gpu: 1, hours: 0.1}
"""


def main(arguments: list[str]) -> int:
    """Replay the queues and print the seconds to the end of the run by what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    found: dict[str, list[float]] = {shapes: [] for shapes in SHAPES}
    with tempfile.TemporaryDirectory(prefix="ditbench-first-") as name:
        folder = Path(name)
        (folder / "work.sh").write_text(PROGRAM)
        (folder / "work.yaml").write_text(CONFIG)
        cluster = Cluster.start(folder / "slurm")
        try:
            for number in range(options.states):
                for shapes in SHAPES:
                    _fill(cluster, random.Random(f"{options.seed} {number}"))
                    found[shapes].append(_finish_s(cluster, folder, shapes))
                    cluster.clear()
                print(number, [round(found[shapes][-1], 1) for shapes in SHAPES], flush=True)
        finally:
            cluster.stop()
    medians = {shapes: statistics.median(values) for shapes, values in found.items()}
    best = min(medians[shapes] for shapes in SHAPES[:2])
    oracle = statistics.median(map(min, found[SHAPES[0]], found[SHAPES[1]]))
    first = medians[SHAPES[2]]
    print(json.dumps({
        "states": options.states, "median_s": medians,
        "mean_s": {shapes: statistics.fmean(values) for shapes, values in found.items()},
        "90_percent_s": {shapes: _late_s(values) for shapes, values in found.items()},
        "worst_s": {shapes: max(values) for shapes, values in found.items()},
        "first_over_best_fixed": first / best,
        "first_over_best_of_each_queue": first / oracle,
    }, indent=1))  # fmt: skip
    return 0


def _late_s(values: list[float]) -> float:
    """Return the time within which 90 % were done."""
    return statistics.quantiles(values * (1 + (len(values) < 2)), n=10, method="inclusive")[-1]


def _fill(cluster: Cluster, chance: random.Random) -> None:
    """Queue other jobs on each node, and wait until Slurm has started one on each of these."""
    queued = []
    for node in NODES:
        words = (f"-w{node}", "--exclusive", "--time=1", "--output=/dev/null")
        scripts = [f"sleep {chance.uniform(0, 20):.1f}" for _ in range(chance.randint(0, 2))]
        queued.append([cluster.submit(*words, script=script) for script in scripts])
    # A short job may have ended by then.
    started = lambda jobs: any(cluster.state(job) != "PENDING" for job in jobs)  # noqa: E731
    wait_until(lambda: all(map(started, filter(None, queued))), what="a job on each filled node")


def _finish_s(cluster: Cluster, folder: Path, shapes: str) -> float:
    """Return the seconds from the submission on these shapes to the end of the run."""
    environment = {
        "SITE": "local", "LOGS": str(folder / "logs"), "VENV": sys.prefix, "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    began = time.time()
    words = (sys.executable, "-m", "launch", "submit", folder / "work.yaml", "--new")
    done = cluster.run(*words, "--first", shapes, cwd=ROOT, env=environment)
    run = RunFolder(Path(done.stdout.splitlines()[0].partition(": ")[2]))
    last = lambda: state(run.records()) or {}  # noqa: E731
    wait_until(lambda: last().get("event") == "done", timeout=180, what=f"{run.path} to be done")
    return float(last()["time"]) - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
