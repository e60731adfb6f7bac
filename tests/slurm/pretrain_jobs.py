"""Jobs of plain sbatch on a real Slurm, and the curve that they must have."""

import sys
from dataclasses import dataclass
from pathlib import Path

from configs.disk import replace_file
from runs.folder import RunFolder
from tests.real_runs import TINY, losses
from tests.slurm.cluster import Cluster, wait_until

# Without decay the curve does not depend on the total number of steps.
ENDLESS = (
    *TINY, "train.steps=1000000", "optimizer.decay=0", "log.every=1", "checkpoint.every=50",
)  # fmt: skip
TWO_BY_TWO = ("--nodes=2", "--gpus-per-node=a40:2")
TWO_BY_ONE = ("--nodes=2", "--gpus-per-node=a40:1")
ONE = ("--nodes=1", "--gpus-per-node=a40:1")


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Submit jobs of one kind to the one-machine Slurm, with a separate folder of runs."""

    cluster: Cluster
    logs: Path
    kind: str = "pretrain"

    def submit(self, *arguments: str | Path, flags: tuple[str, ...] = ONE) -> str:
        """Submit with plain sbatch from the checkout; return the job's id."""
        output = f"--output={self.logs}/%x-%j.out"
        return self.cluster.submit(
            "--cpus-per-task=1", "--time=10", output, *flags, f"jobs/{self.kind}.sbatch",
            *map(str, arguments), cwd=Path.cwd(), env=self.environment,
        )  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        return {
            "VENV": sys.prefix,
            "SITE": "local",
            "LOGS": str(self.logs),
            "OMP_WAIT_POLICY": "passive",
        }

    def run_of(self, job: str) -> RunFolder:
        """Return the run of the job."""
        wait_until(lambda: list(self.logs.glob(f"*-{job}/config.yaml")), timeout=60)
        return RunFolder(next(self.logs.glob(f"*-{job}")))

    def at_step(self, job: str, step: int, *, attempt: int = 1) -> RunFolder:
        """Return the job's run once the attempt has recorded the step."""
        run = self.run_of(job)

        def is_recorded() -> bool:
            return any(
                record["attempt"] == attempt and record.get("loss") and record["step"] >= step
                for record in run.records()
            )

        wait_until(
            is_recorded, timeout=90, what=f"step {step} of attempt {attempt}: {self.output(job)}"
        )
        return run

    def output(self, job: str) -> str:
        """Return what the job itself printed."""
        return "".join(path.read_text() for path in self.logs.glob(f"*-{job}.out"))

    def state(self, job: str) -> str:
        """Return the job's final state and exit code from the accounting."""
        row = self.cluster.accounted(job, "State", "ExitCode")
        return f"{row['State'].split()[0]} {row['ExitCode']}"


def end_at(run: RunFolder, step: int) -> None:
    """Let the next attempt end at `step`, like an override of `train.steps`."""
    replace_file(run.attempt(run.attempts()[-1]) / "overrides.yaml", f"train: {{steps: {step}}}\n")


def expect_same_curve(run: RunFolder, reference: RunFolder) -> None:
    """Check that the losses of all common steps are bit-identical."""
    found, expected = losses(run), losses(reference)
    common = found.keys() & expected.keys()
    assert len(common) >= 50
    assert sorted(found) == list(range(1, max(found) + 1))
    assert {step: found[step] for step in common} == {step: expected[step] for step in common}
