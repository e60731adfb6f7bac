"""Queueing one run on several shapes. Slurm is replaced by shell scripts."""

import json
from pathlib import Path

import pytest

from configs.load import load
from launch.submit.alternatives import parse_shapes
from runs.folder import find_runs
from tests.launch.conftest import DIGITS

FIRST = ("--first", "a40:1x2,a100:1")


@pytest.fixture(autouse=True)
def _slurm(command, tmp_path: Path) -> None:
    """A cluster with a40 and a100 that accepts every job, the first as 1."""
    command("sinfo", r"""[[ $* == *%D* ]] || printf 'gpu*|2-00:00:00|1-8\n'""")
    command(
        "sbatch",
        f"""[[ $1 == --test-only ]] && exit 0
        echo >>{tmp_path}/jobs; echo Submitted batch job $(wc -l <{tmp_path}/jobs)""",
    )
    command("scancel", f'echo "$@" >>{tmp_path}/cancelled')
    command(
        "squeue", r"printf '1|PENDING|||2036-01-01T10:00:00|x\n2|PENDING|||2036-01-01T09:00:00|x\n'"
    )
    command("sacct", "exit 1")


def test_each_shape_is_a_job_of_the_same_run_with_its_resources_and_layout(
    launch, site: Path
) -> None:
    code, out, err = launch("submit", DIGITS, *FIRST)
    assert code == 0, err
    (run,) = find_runs(site)
    assert out == f"run: {run.path}\njob: 1 (a40:1x2)\njob: 2 (a100:1x1)\n"
    texts = [(run.path / "jobs" / f"{job}.sbatch").read_text() for job in (1, 2)]
    for text, shape, words in zip(
        texts,
        ("a40:1x2", "a100:1x1"),
        ("resources.gpu=a40 resources.nodes=1 resources.gpus_per_node=2",
         "resources.gpu=a100 resources.nodes=1 resources.gpus_per_node=1"),
        strict=True,
    ):  # fmt: skip
        assert f"export DITBENCH_FIRST={run.name.removeprefix('digits-')}\n" in text
        assert f"export DITBENCH_ALTERNATIVE={shape}\n" in text
        assert f"#SBATCH --gpus-per-node={shape.replace('1x', '')}\n" in text
        assert text.endswith(f"/jobs/pretrain.sbatch {run.path} {words}\n")
    assert run.config().resources.gpu is None
    assert [one["event"] for one in run.records()] == ["queued"]


def test_numbers_that_a_shape_lacks_are_those_of_the_config() -> None:
    config = load(DIGITS, ["resources.nodes=2", "resources.gpus_per_node=4"])
    found = parse_shapes("a40:2,2080ti,1g.10gb:1x7", config)
    assert found == ["a40:2x2", "2080ti:2x4", "1g.10gb:1x7"]


def test_the_micro_batch_and_the_sharding_follow_the_memory_of_the_shape(launch) -> None:
    words = ["model.width=2048", "model.heads=16", "model.depth=32", "train.global_batch=4096"]
    code, out, err = launch("submit", DIGITS, *words, "--first", "a40:2x4,h100:1x4", "--dry-run")
    assert code == 0, err
    small, large = [line for line in out.splitlines() if line.startswith("exec")]
    assert "train.micro_batch=256 layout.shard=8" in small
    assert "train.micro_batch=" in large
    assert "layout.shard" not in large


def test_status_shows_the_job_that_starts_first_and_cancel_ends_both(
    launch, site: Path, tmp_path: Path
) -> None:
    launch("submit", DIGITS, *FIRST)
    (run,) = find_runs(site)
    (row,) = json.loads(launch("status", run.path, "--json")[1])
    assert (row["state"], row["job"]) == ("queued", "2")
    assert launch("submit", run.path, *FIRST)[2].startswith(f"{run.name}: its job")
    assert "job 1 and 2 cancelled; stopped" in launch("cancel", run.path)[1]
    assert (tmp_path / "cancelled").read_text() == "1 2\n"


def test_a_claim_made_before_the_last_job_was_queued_ends_that_job(
    launch, command, site: Path, tmp_path: Path
) -> None:
    command(
        "sbatch",
        f"""[[ $1 == --test-only ]] && exit 0
        if [[ -e {tmp_path}/first ]]; then echo Submitted batch job 2; exit; fi
        touch {tmp_path}/first
        id=$(sed -n 's/^export DITBENCH_FIRST=//p' "$1"); echo 1 >{site}/digits-$id/jobs/$id.claim
        echo Submitted batch job 1""",
    )
    assert launch("submit", DIGITS, *FIRST)[0] == 0
    assert (tmp_path / "cancelled").read_text() == "2\n"


def test_if_sbatch_refuses_one_the_others_are_cancelled_and_nothing_is_left(
    launch, command, site: Path, tmp_path: Path
) -> None:
    command(
        "sbatch",
        """[[ $1 == --test-only ]] && exit 0
        grep -q a100 "$1" && { echo QOSMaxSubmitJob >&2; exit 1; }; echo Submitted batch job 1""",
    )
    code, out, err = launch("submit", DIGITS, *FIRST)
    assert (code, out) == (1, "")
    assert "sbatch refuses the job: QOSMaxSubmitJob" in err
    assert (tmp_path / "cancelled").read_text() == "1\n"
    assert find_runs(site) == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--first", "a40:1x3"], 1, "a40:1x3: train.global_batch 64 does not divide over 3 data"),
        (["--first", "a40:2x1", "layout.tensor=4"], 1, "a40:2x1: layout: replicate null x shard"),
        (["--first", "a40:x2"], 2, "--first: 'a40:x2' is no shape; write GPU:NODESxGPUS"),
        (["--first", "a40,a40:1x1"], 2, "--first: a40:1x1 is named twice"),
        (["--first", "a40:1x1", "model.width=65536", "model.heads=64"], 1,
         "a40:1x1: does not fit: not even one image fits"),
        (["--first", "a40", "train.steps=1,2"], 2, "its cells stay on theirs; --first is for runs"),
        (["--first", "a40", "--local"], 2, "leave it out with --local"),
    ],
)  # fmt: skip
def test_what_cannot_be_an_alternative_is_refused_before_anything_is_queued(
    words: list[str], code: int, message: str, launch, site: Path
) -> None:
    found = launch("submit", DIGITS, *words)
    assert (found[0], found[1]) == (code, "")
    assert message in found[2]
    assert not site.exists()
