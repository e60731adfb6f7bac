"""`python -m launch` on a real Slurm: snapshots, refusals, cancel, resume."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from runs.folder import RunFolder
from tests.real_runs import events, files_with
from tests.slurm.checkout import CANARY, Checkout
from tests.slurm.cluster import Cluster, wait_until

SMALLEST = (
    "model.width=32", "model.heads=4", "model.depth=1", "train.steps=10", "train.global_batch=16",
    "sample.per_class=1", "sample.steps=2",
)  # fmt: skip
A40 = ("resources.gpu=a40", "resources.hours=0.5", "resources.cpus_per_gpu=1")

CARC = ("--site=carc-discovery",)
# A cluster with modules exports this function to its shells.
NO_MODULES = {"BASH_FUNC_module%%": "() { :\n}"}


@dataclass(frozen=True, kw_only=True)
class Edited:
    """A run that was held while the checkout was edited, its job and its commit."""

    run: RunFolder
    job: str
    commit: str


@pytest.fixture(scope="module")
def edited(checkout: Checkout, cluster: Cluster) -> Edited:
    """Submit a tree with one new line on two nodes of two GPUs; edit it before the start."""
    body = checkout.root / "jobs" / "body.sh"
    submitted = body.read_text() + "\n# This line is submitted.\n"
    body.write_text(submitted)
    two = ("resources.nodes=2", "resources.gpus_per_node=2")
    config = checkout.root / "configs" / "pretrain" / "digits.yaml"
    run, job = checkout.submit(config, *SMALLEST, *A40, *two, "--", "--hold")
    try:
        body.write_text("echo This is the edited body.; exit 0\n")
        plain = cluster.submit(
            "--output=%x-%j.out", "jobs/pretrain.sbatch", config, cwd=checkout.root
        )
        cluster.run("scontrol", "release", job)
        cluster.wait(plain, "COMPLETED")
        assert (checkout.root / f"pretrain-{plain}.out").read_text() == (
            "This is the edited body.\n"
        )
        cluster.wait(job, timeout=180)
    finally:
        subprocess.run(["git", "checkout", "-q", "jobs/body.sh"], cwd=checkout.root, check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout.root, capture_output=True, text=True, check=True
    )
    return Edited(run=run, job=job, commit=commit.stdout.strip())


def test_a_launched_run_on_two_nodes_of_two_gpus_reaches_done(
    edited: Edited, cluster: Cluster
) -> None:
    assert events(edited.run) == ["queued", "started", "saved", "done"]
    row = cluster.accounted(edited.job, "ExitCode", "NNodes")
    assert row == {"State": "COMPLETED", "ExitCode": "0:0", "NNodes": "2"}


def test_its_manifest_names_the_job_and_both_nodes(edited: Edited) -> None:
    (facts,) = edited.run.entries()
    assert facts["slurm"]["job"] == edited.job
    assert facts["slurm"]["nodelist"] == "a40-[1-2]"
    assert {rank["node"] for rank in facts["placement"]} == {"a40-1", "a40-2"}


def test_an_edit_after_the_submit_changes_nothing_in_the_job(
    edited: Edited, checkout: Checkout
) -> None:
    output = (checkout.logs / f"{edited.run.name}-{edited.job}.out").read_text()
    assert "edited" not in output
    assert output.endswith(f"done: {edited.run.path}\n")


def test_the_commit_and_the_patch_that_were_submitted_are_recorded(edited: Edited) -> None:
    (facts,) = edited.run.entries()
    assert (facts["commit"], facts["dirty"]) == (edited.commit, True)
    patch = (edited.run.attempt(1) / "code.patch").read_text()
    assert "+# This line is submitted." in patch
    assert "edited" not in patch


def test_the_script_of_the_job_stays_in_the_run_and_no_pickle_does(
    edited: Edited, checkout: Checkout
) -> None:
    assert [file.name for file in (edited.run.path / "jobs").iterdir()] == [f"{edited.job}.sbatch"]
    assert not list(checkout.logs.rglob("*.pkl"))


def test_a_secret_of_the_environment_is_in_no_file(edited: Edited, checkout: Checkout) -> None:
    assert files_with(CANARY, checkout.logs) == []
    assert files_with(edited.job, checkout.logs)


def test_no_folder_name_reached_a_shell_unquoted(edited: Edited, checkout: Checkout) -> None:
    found = [path for path in checkout.root.parent.rglob("*hacked") if path != checkout.root]
    assert found == []
    assert not Path("hacked").exists()


@dataclass(frozen=True, kw_only=True)
class Story:
    """A run on CARC's site that was watched, cancelled and resumed, with the output of each."""

    run: RunFolder
    jobs: list[str]
    states: list[dict[str, object]]
    refused: str
    followed: str


@pytest.fixture(scope="module")
def story(checkout: Checkout, cluster: Cluster) -> Story:
    endless = ("train.steps=1000000", "checkpoint.every=1000000", "log.every=1")
    words = (*SMALLEST, *A40, *endless, "resources.gpus_per_node=2", *CARC)
    run, job = checkout.submit("configs/pretrain/digits.yaml", *words, env=NO_MODULES)
    wait_until(lambda: "started" in events(run), timeout=180, what="the run to start")
    states = [checkout.status(run)]
    refused = checkout.launch("submit", run.path, check=False)
    checkout.launch("cancel", run.path)
    wait_until(lambda: events(run)[-1] == "stopped", timeout=30, what="the run to stop")
    states.append(checkout.status(run))
    cluster.wait(job)
    steps = int(str(states[-1]["steps"]).partition("/")[0]) + 2
    _, second = checkout.submit(run.path, f"train.steps={steps}", *CARC, env=NO_MODULES)
    followed = checkout.launch("tail", run.path)
    states.append(checkout.status(run))
    return Story(
        run=run,
        jobs=[job, second],
        states=states,
        refused=refused.stderr,
        followed=followed.stdout + followed.stderr,
    )


def test_the_carc_flags_give_the_task_of_a_node_all_its_gpus(story: Story) -> None:
    for job in story.jobs:
        script = (story.run.path / "jobs" / f"{job}.sbatch").read_text()
        assert "#SBATCH --gpus-per-task=a40:2\n#SBATCH --job-name=" in script
        assert "#SBATCH --ntasks-per-node=1\n" in script
    for attempt in story.run.entries():
        assert [rank["node"] for rank in attempt["placement"]] == ["a40-1", "a40-1"]


def test_status_asks_slurm_if_the_record_has_no_end(story: Story) -> None:
    running, stopped, done = story.states
    assert running["state"] in {"running", "saving"}
    assert running["job"] == story.jobs[0]
    assert running["nodes"] == "a40-1"
    assert stopped["state"] == "stopped"
    assert (done["state"], done["attempts"], done["job"]) == ("done", 2, story.jobs[1])


def test_a_cancelled_run_saves_and_is_not_requeued(story: Story, cluster: Cluster) -> None:
    assert events(story.run)[:4] == ["queued", "started", "saved", "stopped"]
    assert cluster.accounted(story.jobs[0])["State"].startswith("CANCELLED")


def test_a_second_job_for_a_running_run_is_refused(story: Story) -> None:
    assert f"its job {story.jobs[0]} is RUNNING; wait until it ends" in story.refused


def test_a_stopped_run_is_resumed_by_a_new_job_at_its_step(story: Story) -> None:
    assert events(story.run)[4:] == ["queued", "started", "saved", "done"]
    first, second = [one for one in story.run.records() if one.get("event") == "saved"]
    assert second["step"] == first["step"] + 2


def test_tail_follows_from_the_queue_to_the_end(story: Story) -> None:
    assert "attempts/002/output.log <==" in story.followed
    assert story.followed.endswith(f"done: {story.run.path}\n")


def test_a_pending_run_shows_why_and_is_stopped_by_cancel(
    checkout: Checkout, cluster: Cluster
) -> None:
    run, job = checkout.submit("configs/pretrain/digits.yaml", *A40, "--", "--begin=now+600")
    waiting = checkout.status(run)
    assert (waiting["state"], waiting["why"]) == ("queued", "BeginTime")
    # As squeue --start estimates it.
    assert 400 < float(str(waiting["start"])) - time.time() < 610
    assert "starts about" in checkout.launch("status", run.path).stdout
    checkout.launch("cancel", run.path)
    assert cluster.wait(job) == "CANCELLED"
    assert events(run) == ["queued", "stopped"]


def test_status_works_without_accounting(checkout: Checkout, without_sacct: dict[str, str]) -> None:
    run, job = checkout.submit("configs/pretrain/digits.yaml", *A40, "--", "--hold")
    held = checkout.status(run, env=without_sacct)
    assert (held["state"], held["why"]) == ("queued", "JobHeldUser")
    scripts = run.path / "jobs"
    (scripts / f"{job}.sbatch").rename(scripts / "1.sbatch")
    assert checkout.status(run, env=without_sacct)["state"] == "lost"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["resources.gpu=h100"], 1, "node configuration is not available"),
        (["resources.gpu=a40", "resources.gpus_per_node=4"], 1, "--gpus-per-node=a40:4"),
        (["resources.gpu=a40", "resources.nodes=4"], 1, "--nodes=4"),
        (["resources.hours=49"], 1, "partition gpu allows 48:00:00, not 49:00:00: lower"),
        (["--", "--partition=debug"], 1, "partition debug allows 00:05:00, not 04:00:00"),
        (["--", "--partition=night"], 1, "no partition night; available: gpu, debug"),
    ],
)
def test_an_impossible_run_is_refused_before_it_is_queued(
    checkout: Checkout, cluster: Cluster, arguments: list[str], code: int, message: str
) -> None:
    before = sorted(checkout.logs.glob("*")) if checkout.logs.exists() else []
    config = "configs/pretrain/digits.yaml"
    refused = checkout.launch("submit", config, *arguments, check=False)
    assert (refused.returncode, refused.stdout) == (code, "")
    assert message in refused.stderr
    assert cluster.run("squeue", "-h").stdout == ""
    assert before == (sorted(checkout.logs.glob("*")) if checkout.logs.exists() else [])
