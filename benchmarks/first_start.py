"""Compare the finish of `submit --first` with that of a fixed type of GPU, on replayed queues.

    python -m benchmarks.first_start [--states 50] [--seed 0]      # 20 minutes, most of them asleep

It needs the one-machine Slurm. In a state of the queue a node of each type becomes free some time
after the submission. It is replayed three times: for a run on the A40, on the A100, and on
whichever starts first, the faster one named first, as `ditbench when` advises. The run has ten
steps, of 1.6 s on an A40 and 1 s on an A100. The best fixed choice is the type which, taken in all
states, has the smaller median finish.

The waits of the two types are independent, log-normal with sigma 1.75 and a median of twice the run
on the A100. Logs of batch systems show waits over several orders of magnitude, for which a
log-normal law is the usual first model (Brevik, Nurmi and Wolski, PPoPP 2006, compare their bounds
with it); a sigma of 1.75 puts 90 % of them between 1/18 and 18 times the median. Both types have
one median, so that neither is known to be free sooner. A wait ends after 90 s at the latest, which
no median of a finish depends on. Beside the ratio that was measured stand three figures without
Slurm: what the drawn waits give if Slurm and the start of a run take no time (`without_overhead`),
these overheads of the fixed choices (`overhead_s`, quartiles), and the ratio that the law itself
gives (`expected`), by the median wait over the run and the correlation of the logs of both waits.

A step is a line of a file. A run is trained twice if it has two attempts or a step twice, and a
step is lost if it is missing at the end; neither may happen.
"""

import argparse
import json
import queue
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runs.folder import ROOT, RunFolder
from runs.jobs import submitted_jobs
from runs.records import state
from tests.slurm.cluster import FINAL_STATES, Cluster, wait_until

TYPES = ("a40", "a100")
SHAPES = ("a40:1x2", "a100:1x2", "a100:1x2,a40:1x2")
STEPS, STEP_S = 10, {"a40": 1.6, "a100": 1.0}
RUN_S = STEPS * STEP_S["a100"]
SIGMA, WAIT_OVER_RUN, LONGEST_S = 1.75, 2.0, 90.0
# Each Slurm has two lanes, a node of each type, that share nothing but the controller.
CLUSTERS, LANES = 3, (1, 2)
PROGRAM = f"""\
case $SLURMD_NODENAME in a40*) s={STEP_S["a40"]} ;; *) s={STEP_S["a100"]} ;; esac
for n in {{1..{STEPS}}}; do sleep $s; echo $n >>"$1/steps"; done
"""
CONFIG = """\
kind: command
run: bash work.sh {output}
files: [work.sh]
resources: {gpus_per_node: 2, cpus_per_gpu: 1, hours: 0.1}
"""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A partition with one node of each type, and a folder of its own."""

    cluster: Cluster
    number: int
    folder: Path

    @property
    def partition(self) -> str:
        """The name of the partition."""
        return f"lane{self.number}"


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Seconds from the submission to the end of the run; its attempts, and its steps in order."""

    finish_s: float
    attempts: int
    steps: list[int]


def main(arguments: list[str]) -> int:
    """Replay the queues, print the finish of each run, and the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    states = [draw(random.Random(f"{options.seed} {n}")) for n in range(options.states)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ditbench-first-")))
        (folder / "work.sh").write_text(PROGRAM)
        (folder / "work.yaml").write_text(CONFIG)
        free: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for number in range(CLUSTERS):
            cluster = Cluster.start(folder / f"slurm-{number}", lines=[
                f"PartitionName=lane{one} Nodes=a40-{one},a100-{one} PreemptMode=OFF"
                for one in LANES
            ])  # fmt: skip
            stack.callback(cluster.stop)
            for one in LANES:
                free.put(Lane(cluster=cluster, number=one, folder=folder))
        pool = stack.enter_context(ThreadPoolExecutor(CLUSTERS * len(LANES)))
        asked = [(n, shapes) for n in range(options.states) for shapes in SHAPES]
        replays = list(pool.map(lambda one: _in_a_lane(free, states[one[0]], *one), asked))
    summary = summarise(
        np.array([one.finish_s for one in replays]).reshape(-1, len(SHAPES)), seed=options.seed
    )
    runs = {
        "runs": len(replays),
        "trained_twice": sum(
            one.attempts > 1 or len(one.steps) > len({*one.steps}) for one in replays
        ),
        "steps_lost": sum(STEPS - len({*one.steps}) for one in replays),
    }
    overheads = [
        one.finish_s - states[number][gpu] - STEPS * STEP_S[gpu]
        for (number, shapes), one in zip(asked, replays, strict=True)
        for gpu in TYPES
        if shapes.startswith(gpu) and "," not in shapes
    ]
    computed = {
        "overhead_s": np.quantile(overheads, [0.25, 0.5, 0.75]).round(1).tolist(),
        "without_overhead": ratio(np.array([[*one.values()] for one in states]) / RUN_S),
        "expected": expected(),
    }
    print(json.dumps(summary | runs | computed, indent=1))
    return int(runs["trained_twice"] > 0 or runs["steps_lost"] > 0)


def draw(chance: random.Random) -> dict[str, float]:
    """Return for each type of GPU the seconds after which its node is free."""
    waits = {gpu: chance.lognormvariate(np.log(WAIT_OVER_RUN * RUN_S), SIGMA) for gpu in TYPES}
    return {gpu: min(wait, LONGEST_S) for gpu, wait in waits.items()}


def summarise(finish_s: np.ndarray, *, seed: int) -> dict[str, object]:
    """Return quantiles [states, shapes] and ratios of medians, with 95 % bootstrap intervals."""
    chance = np.random.default_rng(seed)
    # The three replays of a state are drawn together, and the best fixed choice is found anew.
    drawn = finish_s[chance.integers(len(finish_s), size=(10_000, len(finish_s)))]
    oracle = [array[..., :2].min(axis=-1) for array in (finish_s, drawn)]
    medians, again = np.median(finish_s, axis=0), np.median(drawn, axis=1)
    over_best = again[:, 2] / again[:, :2].min(axis=1)
    over_oracle = again[:, 2] / np.median(oracle[1], axis=1)
    columns = dict(zip(SHAPES, finish_s.T, strict=True))
    return {
        "states": len(finish_s),
        **{
            name: {shapes: round(float(of(column)), 1) for shapes, column in columns.items()}
            for name, of in (
                ("median_s", np.median), ("mean_s", np.mean), ("worst_s", np.max),
                ("90_percent_s", lambda column: np.quantile(column, 0.9)),
            )
        },
        "first_over_best_fixed": medians[2] / medians[:2].min(),
        "first_over_best_fixed_95": np.quantile(over_best, [0.025, 0.975]).tolist(),
        "first_over_best_of_each_queue": medians[2] / np.median(oracle[0]),
        "first_over_best_of_each_queue_95": np.quantile(over_oracle, [0.025, 0.975]).tolist(),
    }  # fmt: skip


def ratio(waits: np.ndarray) -> float:
    """Return the ratio to the best fixed choice without overheads, for waits in runs on the A100.

    `waits` is [states, TYPES].
    """
    run = np.array([STEP_S[gpu] / STEP_S["a100"] for gpu in TYPES])
    first = waits.min(axis=1) + run[waits.argmin(axis=1)]
    return float(np.median(first) / np.median(waits + run, axis=0).min())


def expected() -> dict[str, dict[str, float]]:
    """Return the ratio by the law, {correlation: {median wait over run: ratio}}."""
    chance, found = np.random.default_rng(0), dict[str, dict[str, float]]()
    for correlation in (0.0, 0.5, 0.8):
        logs = chance.multivariate_normal((0, 0), [[1, correlation], [correlation, 1]], 200_000)
        found[f"{correlation:g}"] = {
            f"{over:g}": round(ratio(over * np.exp(SIGMA * logs)), 2)
            for over in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
        }
    return found


def _in_a_lane(
    free: "queue.SimpleQueue[Lane]", waits: Mapping[str, float], number: int, shapes: str
) -> Replay:
    lane = free.get()
    try:
        replay = _replay(lane, waits, shapes)
    finally:
        free.put(lane)
    shown = {gpu: round(wait, 1) for gpu, wait in waits.items()}
    print(
        json.dumps({"state": number, "waits_s": shown, "shapes": shapes} | vars(replay)), flush=True
    )
    return replay


def _replay(lane: Lane, waits: Mapping[str, float], shapes: str) -> Replay:
    """Occupy the nodes of a lane, submit the run, and free each node after its wait."""
    cluster = lane.cluster
    with tempfile.TemporaryDirectory(dir=lane.folder) as name:
        go = Path(name, "submitted")
        others = [
            cluster.submit(
                f"-w{gpu}-{lane.number}", f"--partition={lane.partition}", "--exclusive",
                "--time=10", "--output=/dev/null",
                script=f"until [[ -e {go} ]]; do sleep 0.2; done; sleep {wait:.1f}",
            )
            for gpu, wait in waits.items()
        ]  # fmt: skip
        for job in others:
            cluster.wait(job, "RUNNING")
        began = time.time()
        go.touch()
        run = _submitted(lane, shapes)
        last = lambda: state(run.records()) or {}  # noqa: E731
        wait_until(lambda: last().get("event") == "done", timeout=300, what=f"{run.path}: done")
    # The loser was cancelled as it waited, or found the claim.
    _wait_for_the_end(cluster, submitted_jobs(run))
    cluster.run("scancel", *others, check=False)
    _wait_for_the_end(cluster, others)
    steps = [int(line) for line in (run.path / "output" / "steps").read_text().split()]
    finish_s = float(last()["time"]) - began
    return Replay(finish_s=finish_s, attempts=len(run.attempts()), steps=steps)


def _submitted(lane: Lane, shapes: str) -> RunFolder:
    environment = {
        "SITE": "local", "LOGS": str(lane.folder / "logs"), "VENV": sys.prefix,
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    done = lane.cluster.run(
        sys.executable, "-m", "launch", "submit", lane.folder / "work.yaml", "--new", "--first",
        shapes, "--partition", lane.partition, cwd=ROOT, env=environment,
    )  # fmt: skip
    return RunFolder(Path(done.stdout.splitlines()[0].partition(": ")[2]))


def _wait_for_the_end(cluster: Cluster, jobs: Sequence[str]) -> None:
    # Slurm forgets a job some minutes after its end.
    ended = lambda: {cluster.state(job) for job in jobs} <= {*FINAL_STATES, ""}  # noqa: E731
    wait_until(ended, timeout=60, what=f"the end of {', '.join(jobs)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
