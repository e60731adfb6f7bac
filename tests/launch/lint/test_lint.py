"""Good batch scripts have no findings; a finding names its file and line."""

from pathlib import Path

import pytest

from launch.lint.lint import lint
from launch.lint.script import parse_script, read_script
from runs.folder import ROOT
from tests.launch.conftest import Launch

ONE_NODE = """\
#!/bin/bash
#SBATCH --job-name=train -N 1
#SBATCH --gres=gpu:1
#SBATCH -c 8 --mem=32G
#SBATCH -o train-%j.out
#SBATCH -t 1-00:00:00

set -e
module load cuda   # whatever it brings
source ~/venv/bin/activate
cd "$SLURM_SUBMIT_DIR"
python train.py --lr 1e-4 --resume auto
"""
TWO_NODES = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=a100:4
#SBATCH --cpus-per-task=32
#SBATCH --mem=200G
#SBATCH --time=12:00:00
#SBATCH --signal=B:USR1@180
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK OMP_NUM_THREADS=8
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
[[ -n $head ]] || exit 1
port=$((20000 + SLURM_JOB_ID % 12000))
paused=
on_warning() {
  paused=yes
  kill -USR1 "$pid"
}
trap on_warning USR1
trap 'kill -TERM "$pid"' TERM

srun bash -c 'trap "" USR1 TERM; exec torchrun --nnodes=2 --nproc-per-node=4 \\
  --rdzv-backend=c10d --rdzv-endpoint="$0" --rdzv-id="$SLURM_JOB_ID-a" train.py' "$head:$port" &
pid=$!
status=0
while kill -0 "$pid" 2>/dev/null; do
  wait "$pid"
  status=$?
done
if [[ -n $paused ]]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
"""
QUERY_FIRST = """\
#!/bin/bash -l
#SBATCH --nodes 2 --gres gpu:4
#SBATCH --ntasks-per-node 1
#SBATCH --cpus-per-task 32   # all of them
#SBATCH --mem\t200G
set -Eeuo pipefail
export OMP_NUM_THREADS=8
head=$(srun --ntasks=1 -w "$(hostname)" hostname --ip-address 2>&1 | tail -n1)
srun -c "$SLURM_CPUS_PER_TASK" torchrun --nnodes "$SLURM_NNODES" --nproc_per_node 4 \\
  --rdzv_id $RANDOM --rdzv_backend c10d --rdzv_endpoint "$head:$((20000 + RANDOM % 9999))" train.py
echo over
"""
WITH_A_HERE_DOCUMENT = """\
#!/bin/bash -e
#SBATCH --ntasks=64 --mem-per-cpu=2G
#SBATCH --cpus-per-task=1
cat >hosts.py <<'END'
#SBATCH --nodes=2
MASTER_PORT=29500
END
export SRUN_CPUS_PER_TASK=1
srun python hosts.py 2>&1
echo over
"""


def rules(text: str) -> list[str]:
    found = lint(parse_script(text, path=Path("my.sbatch")))
    return [f"{one.number}: {one.rule.name}" for one in found]


def names(text: str) -> list[str]:
    return [rule.partition(": ")[2] for rule in rules(text)]


@pytest.mark.parametrize("text", [ONE_NODE, TWO_NODES, QUERY_FIRST])
def test_a_good_script_has_no_findings(text: str) -> None:
    assert rules(text) == []


def test_a_here_document_is_not_part_of_the_script() -> None:
    assert rules(WITH_A_HERE_DOCUMENT) == []


def test_a_quoted_text_of_several_lines_is_one_command() -> None:
    container = """srun --container-image=a.sqsh bash -c "
      export x=1  # it's
      node src
    "
    """
    head = "#!/bin/bash\n#SBATCH --mem=9G --cpus-per-task=8 --time=1\n"
    assert "lost-exit-code" not in names(head + container)
    assert "lost-exit-code" in names(f"{head}{container}echo over\n")
    assert "lost-exit-code" in names(f"{head}echo don\\'t\n{container}echo over\n")


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "jobs").glob("*.sbatch")))
def test_our_own_jobs_have_no_warnings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = lint(read_script(ROOT / "jobs" / name))
    assert [one.rule.name for one in found if one.rule.level == "warning"] == []


def test_findings_are_printed_line_by_line_with_their_fix(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "my.sbatch"
    script.write_text(ONE_NODE.replace("cd ", "export MASTER_PORT=29500\ncd "))
    code, out, err = launch("check", script)
    assert (code, err) == (1, "1 warning, 0 remarks\n")
    first, second = out.splitlines()
    assert first.startswith(f"{script}:11: warning: fixed port: ")
    assert second.startswith("    fix: port=$((20000 + ")


ACTIVATED = "#!/bin/bash\n#SBATCH -c 8 --mem=32G --time={}\n{}\n{}\n"
HOPES, SAVES = "unchecked-environment", "limit-without-warning"


@pytest.mark.parametrize(
    ("time", "first", "work", "expected"),
    [
        ("1:00:00", "conda activate mine", "python train.py", [HOPES]),
        ("1:00:00", "source ~/venv/bin/activate", "srun -c8 python a.py", [HOPES]),
        ("1:00:00", "source activate mine", "stdbuf -oL python a.py", [HOPES]),
        ("1:00:00", "conda activate mine || exit 1", "python train.py", []),
        ("1:00:00", "set -euo pipefail; conda activate mine", "python train.py", []),
        ("1:00:00", "conda activate mine", "echo no work", []),
        ("24:00:00", "module load cuda", "python train.py", [SAVES]),
        ("7-0", "module load cuda", "srun -c8 python pretrain.py", [SAVES]),
        ("3:59:00", "module load cuda", "python train.py", []),
        ("24:00:00", "module load cuda", "python evaluate.py", []),
        ("24:00:00", "module load cuda", "python train.py --resume last.pt", []),
        ("24:00:00", "source jobs/requeue.sh", "run_and_requeue python train.py", []),
        ("24:00:00 --signal=USR1@90", "module load cuda", "srun -c8 python train.py", []),
    ],
)
def test_an_unchecked_environment_and_a_long_run_without_a_save_are_remarked_on(
    time: str, first: str, work: str, expected: list[str]
) -> None:
    assert names(ACTIVATED.format(time, first, work)) == expected


@pytest.mark.parametrize(("work", "expected"), [("python", []), ("srun -c1 python", ["one-cpu"])])
def test_a_script_without_srun_has_the_cpus_of_all_its_tasks(
    work: str, expected: list[str]
) -> None:
    assert names(f"#!/bin/bash\n#SBATCH --ntasks=24 --mem=9G\n{work} train.py\n") == expected


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("torchrun --master-port 29500 a.py", "fixed-port"),
        ("torchrun --rdzv_endpoint=$HEAD:29400 a.py", "fixed-port"),
        ("accelerate launch --main_process_port=29500 a.py", "fixed-port"),
        ("python a.py --dist-url tcp://$HEAD:23456", "fixed-port"),
        ("MASTER_ADDR=$(hostname -i) || MASTER_ADDR=127.0.0.1", "localhost-fallback"),
        ("python -m torch.distributed.run a.py", "omp-threads"),
        ("cd $(dirname $(realpath ${BASH_SOURCE[0]}))", "spool-path"),
        ("torchrun --rdzv-backend=c10d --rdzv-id=$ID --node_rank=$SLURM_NODEID a.py", "node-rank"),
        ('srun $ARGS bash -c "$COMMAND"', "srun-cpus"),
        ("state=$(sacct -j 7 --json | jq .)", "json-output"),
    ],
)
def test_other_spellings_of_a_mistake_are_found(line: str, rule: str) -> None:
    text = ONE_NODE.replace('cd "$SLURM_SUBMIT_DIR"\npython train.py --lr 1e-4', line)
    assert f"11: {rule}" in rules(text)


def test_mistakes_in_directives_need_no_command() -> None:
    text = "#!/bin/bash\n#SBATCH --exclusive\n#SBATCH --oversubscribe\n"
    assert "3: shared-and-exclusive" in rules(text)


def test_a_short_warning_is_a_remark() -> None:
    text = TWO_NODES.replace("USR1@180", "USR1@20")
    assert rules(text) == ["8: short-warning"]


def test_a_rule_of_some_versions_names_them_unless_the_version_is_known(
    tmp_path: Path, launch: Launch
) -> None:
    script = tmp_path / "my.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --time=1\necho $SLURM_JOB_END_TIME\n")
    _, old, _ = launch("check", script, "--slurm", "22.05")
    assert "warning: SLURM_JOB_END_TIME does not exist" in old
    assert launch("check", script, "--slurm", "24.11")[1] == ""
    code, _, error = launch("check", script, "--slurm", "new")
    assert (code, error) == (2, "--slurm=new: invalid version; name it as in 24.11\n")


@pytest.mark.parametrize(
    "work",
    [
        "apptainer exec --nv image.sif python train.py",
        "uv run train.py",
        "conda run -n e python a.py",
    ],
)
def test_work_inside_a_container_or_an_environment_counts_as_work(work: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --time=1\n{work}\necho over\n"
    found = lint(parse_script(text, path=Path("my.sbatch")))
    assert "lost-exit-code" in [one.rule.name for one in found]
