"""Compare batch scripts by plain sbatch and by `ditbench submit` on the one-machine Slurm.

python -m benchmarks.public_scripts FOLDER [--markdown]

FOLDER holds batch scripts; `index.tsv` in it may name the source of each: file, URL@commit, path.
The programs that they start are replaced by stand-ins on the PATH, which print their arguments and
lines of a training. Flags that name what this machine lacks (partition, GPUs, memory) are
overridden on the command line, in the same words for both. Every script runs twice by sbatch: what
differs between these two, such as a port made of the job's id, is compared without its digits.
"""

import argparse
import itertools
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from launch.lint.script import parse_script
from launch.script.edit import mark_resume, vary
from runs.folder import ROOT
from tests.slurm.cluster import NODES, Cluster

STAND_INS = (
    "python", "python3", "torchrun", "accelerate", "deepspeed", "mpirun", "conda", "mamba", "uv",
    "apptainer", "singularity", "docker", "enroot", "pixi", "pip", "git", "wget", "curl", "gdown",
    "nvidia-smi", "nvcc", "ray", "make", "rm", "mv", "cp", "mkdir", "rmdir", "ln", "chmod", "scp",
    "rsync", "ssh", "unzip", "tar", "date", "hostname", "sleep", "module", "ldconfig", "sudo",
    "vllm", "lm_eval", "huggingface-cli", "hf", "wandb", "julia", "matlab", "R", "Rscript", "nproc",
    "free", "df", "du", "uptime", "whoami", "id", "find", "ip", "ifconfig", "touch",
)  # fmt: skip
STAND_IN = r"""#!/bin/bash
echo "${0##*/}: $*"
case ${0##*/} in
  python* | torchrun | accelerate | deepspeed | mpirun | uv | apptainer | singularity)
    echo "a remark" >&2
    for step in 1 2 3; do echo "step $step loss 0.$((9 - step))"; done ;;
  sleep) /bin/sleep 0.02 ;;
esac
"""
ARGUMENTS = ("one", "two", "3")
OUTCOMES = ("equal", "equal but for the order of lines", "refused", "refused by both", "differs")
# Names that a user would vary first.
WANTED = re.compile(r"(?i)(^|[-_])(lr|learning|seed|batch|epoch|step)")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What became of a script, and whether a value can be varied and flags be added."""

    name: str
    outcome: str
    detail: str
    varied: str
    resumes: str


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a job left: its state, exit code and name, and the files of its folder."""

    state: tuple[str, ...]
    files: dict[str, bytes]


def overrides(text: str, *, number: int, path: Path) -> list[str]:
    """Return flags that replace requests for what this machine lacks."""
    script = parse_script(text, path=path)
    given = script.directives
    nodes = min(script.count("nodes") or 1, 2)
    place = ",".join(NODES[:2]) if nodes > 1 else NODES[number % len(NODES)]
    flags = {
        "nodes": str(nodes), "nodelist": place, "partition": "gpu", "time": "1", "mem": "1G",
        "ntasks": str(nodes), "ntasks-per-node": "1", "cpus-per-task": "1", "qos": "normal",
        "gres": "gpu:1",
    }  # fmt: skip
    optional = {
        "gpus": str(nodes), "gpus-per-node": "1", "gpus-per-task": "1", "mem-per-cpu": "1G",
        "constraint": "", "exclude": "", "mail-type": "NONE", "dependency": "",
        "reservation": "",
    }  # fmt: skip
    flags |= {name: value for name, value in optional.items() if name in given}
    if "mem-per-cpu" in given:
        del flags["mem"]
    for name in ("output", "error", "chdir"):
        if name in given and (given[name].value.startswith(("/", "~", "$"))):
            flags[name] = "." if name == "chdir" else f"{name}-%j.txt"
    return ["--exclusive", *(f"--{name}={value}" for name, value in flags.items())]


class Laboratory:
    """Folders in which scripts run, one for each job, on one Slurm."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._programs = folder / "programs"
        self._programs.mkdir()
        for name in STAND_INS:
            (self._programs / name).write_text(STAND_IN)
            (self._programs / name).chmod(0o700)

    def place(self, script: Path, how: str) -> Path:
        """Return a new folder with a copy of the script and the folders of its output files."""
        folder = self._folder / how / script.stem
        folder.mkdir(parents=True)
        shutil.copy(script, folder)
        (folder / ".bash_profile").write_text(f'export PATH="{self._programs}:$PATH"\n')
        given = parse_script(script.read_text(errors="replace"), path=script).directives
        for name in ("output", "error"):
            if name in given and not given[name].value.startswith(("/", "~", "$")):
                (folder / given[name].value).parent.mkdir(parents=True, exist_ok=True)
        return folder

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the variables of a user whose home is the folder."""
        path = f"{self._programs}:{self._cluster.environment['PATH']}"
        function = {"BASH_FUNC_module%%": '() {  echo "module $*"\n}'}
        logs = {"LOGS": str(self._folder / "logs")}
        return {"PATH": path, "HOME": str(folder), "PYTHONPATH": ""} | function | logs

    def sbatch(self, script: Path, folder: Path, flags: list[str]) -> tuple[str, str]:
        """Submit by sbatch; return the job, or what is refused."""
        words = ["sbatch", "--parsable", *flags, script.name, *ARGUMENTS]
        done = self._cluster.run(*words, cwd=folder, env=self.environment(folder), check=False)
        return done.stdout.strip(), done.stderr.strip()

    def submit(self, script: Path, folder: Path, flags: list[str]) -> tuple[str, str]:
        """Submit by ditbench; return the job, or what is refused."""
        start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import launch.__main__ as m"
        done = self._cluster.run(
            sys.executable, "-c", f"{start}; sys.exit(m.main())", "submit", script.name,
            "--", *flags, "--", *ARGUMENTS,
            cwd=folder, env=self.environment(folder), check=False,
        )  # fmt: skip
        found = re.search(r"^job: (\d+)", done.stdout, re.MULTILINE)
        refused = [line for line in done.stderr.splitlines() if not line.startswith("site:")]
        return found[1] if found else "", "\n".join(refused)

    def left(self, job: str, folder: Path) -> Left:
        """Wait for a job and return what it left, without its number and folders."""
        row = self._cluster.accounted(job, "ExitCode", "JobName", timeout=600)
        texts = ((str(folder), "FOLDER"), (job, "JOB"))

        def plain(content: bytes) -> bytes:
            # What Slurm says if the nodes of a first step are not free at once.
            content = re.sub(
                rb"(?m)^srun: (Job \d+ step creation|Step created for).*\n", b"", content
            )
            content = re.sub(rb"/[^\s:]+(?=/slurm_script)", b"COPY", content)
            for text, word in texts:
                content = content.replace(text.encode(), word.encode())
            return content

        files = {
            str(file.relative_to(folder)).replace(job, "JOB"): plain(file.read_bytes())
            for file in folder.rglob("*")
            if file.is_file()
        }
        return Left(state=tuple(row.values()), files=files)


def compare(scripts: list[Path], cluster: Cluster, folder: Path) -> Iterator[Comparison]:
    """Yield how each script ends by sbatch, again by sbatch, and by submit."""
    laboratory = Laboratory(cluster, folder)
    jobs = []
    for number, script in enumerate(scripts):
        text = script.read_bytes().decode(errors="surrogateescape")
        flags = overrides(text, number=number, path=script)
        places = [laboratory.place(script, how) for how in ("plain", "again", "own")]
        answers = [laboratory.sbatch(script, place, flags) for place in places[:2]]
        answers.append(laboratory.submit(script, places[2], flags))
        jobs.append((script, text, places, answers))
    for script, text, places, answers in jobs:
        if answers[0][0] and answers[2][0]:
            left = [
                laboratory.left(job, place) for (job, _), place in zip(answers, places, strict=True)
            ]
            outcome, detail = judge(*left)
        elif answers[2][0]:
            outcome, detail = "differs", f"sbatch refuses: {answers[0][1]}"
        else:
            outcome = "refused" if answers[0][0] else "refused by both"
            detail = answers[2][1]
        yield Comparison(
            name=script.name, outcome=outcome, detail=detail,
            varied=varied(text, script), resumes=resumes(text, script),
        )  # fmt: skip


def judge(plain: Left, again: Left, own: Left) -> tuple[str, str]:
    """Return the outcome, and what differs first."""
    if plain.state != own.state:
        return "differs", f"{plain.state} {own.state}"
    if plain.files.keys() != own.files.keys():
        return "differs", f"files {plain.files.keys() ^ own.files.keys()}"
    orders = False
    for name in plain.files:
        lines, others = ([*file.files[name].split(b"\n")] for file in (plain, own))
        control = again.files.get(name, b"").split(b"\n")
        if lines == others:
            continue
        stable = [lines, others]
        if lines != control:
            # Such as a port that is made of the number of the job.
            stable = [[re.sub(rb"\d+", b"", line) for line in one] for one in stable]
        if stable[0] == stable[1]:
            continue
        if sorted(stable[0]) != sorted(stable[1]):
            pairs = itertools.zip_longest(*stable, fillvalue=b"")
            return "differs", f"{name}: {next(pair for pair in pairs if pair[0] != pair[1])}"
        orders = True
    return OUTCOMES[1 if orders else 0], ""


def varied(text: str, path: Path) -> str:
    """Return a name that can be varied in the script, the likeliest first; "" if none."""
    flags = re.findall(r"(?<![\w-])(--[a-zA-Z][\w.-]+)[= ]", text)
    names = [*flags, *re.findall(r"^\s*(?:export\s+)?(\w+)=", text, re.MULTILINE)]
    for name in sorted(dict.fromkeys(names), key=lambda name: not WANTED.search(name)):
        try:
            if vary(text, name, "7", path=path).text != text:
                return name
        except ConfigError:
            continue
    return ""


def resumes(text: str, path: Path) -> str:
    """Return "yes" if flags of a resume can be added, else why not."""
    try:
        mark_resume(text, "MARK", path=path)
    except ConfigError as error:
        return str(error).partition(": ")[2]
    return "yes"


def main() -> None:
    """Print a row for each script, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--markdown", action="store_true", help="a table for a page")
    options = parser.parse_args()
    scripts = sorted(file for file in options.folder.iterdir() if file.suffix != ".tsv")
    with tempfile.TemporaryDirectory() as name:
        cluster = Cluster.start(Path(name) / "slurm", lines=["AccountingStorageEnforce=nosteps"])
        try:
            (Path(name) / "folders").mkdir()
            rows = list(compare(scripts, cluster, Path(name) / "folders"))
        finally:
            cluster.stop()
    if not options.markdown:
        for row in rows:
            print(f"{row.name}: {row.outcome} {row.detail} | {row.varied} | {row.resumes}")
    counts = Counter(row.outcome for row in rows)
    print(f"| scripts | {' | '.join(OUTCOMES)} | a value varied | flags of a resume added |")
    print("|---" * (len(OUTCOMES) + 3) + "|")
    ends = [sum(bool(row.varied) for row in rows), sum(row.resumes == "yes" for row in rows)]
    cells = [len(rows), *(counts[outcome] for outcome in OUTCOMES), *ends]
    print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
